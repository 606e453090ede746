"""Processes that stay, and hold the slots: seats, the driver's desk, and the engine that has them work.

What goes between driver and seats is data (JSON and Arrow, by Arrow Flight), never code. Who starts the processes is
told from outside (:mod:`spatialstream.spark.seating`).
"""
