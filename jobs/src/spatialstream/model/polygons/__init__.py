"""Polygons: regions with straight edges in the coordinates of the space, read from GeoJSON, exact at the border.

A *polygon* here is a union of parts; a part is a shell without its holes. Edges are straight in longitude and latitude
(or in x and y of a plane), and the borders of shells and holes belong to the polygon. Longitudes that differ by 360 are
the same place. A point lies in a polygon or it does not by the numbers alone: see
:mod:`~spatialstream.model.polygons.orientation`.

:mod:`.geojson` reads and checks a geometry once, where it enters; :mod:`.polygon` is the value, in a normal form with
a digest; :mod:`.table` keeps many as columns, with the kernel that tests points; :mod:`.cover` classifies boxes and
cells.
"""
