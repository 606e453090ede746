// What stands in for the map where it cannot be drawn: it has a view, which regions are taken from, and shows nothing.

const HIGHEST = 85; // latitude

export class NoMap {
  constructor(container, { center: [lng, lat], zoom }) {
    [this.container, this.center, this.zoom] = [container, { lng, lat }, zoom];
  }

  getContainer() {
    return this.container;
  }

  getCenter() {
    return this.center;
  }

  getZoom() {
    return this.zoom;
  }

  getBounds() {
    const half = 180 / 2 ** this.zoom;
    const { lng, lat } = this.center;
    const [west, south, east, north] = [lng - half, Math.max(-HIGHEST, lat - half / 2), lng + half, Math.min(HIGHEST, lat + half / 2)];
    return {
      getWest: () => west,
      getEast: () => east,
      getSouthWest: () => ({ lng: west, lat: south }),
      getNorthEast: () => ({ lng: east, lat: north }),
    };
  }

  easeTo({ center: [lng, lat], zoom }) {
    [this.center, this.zoom] = [{ lng, lat }, zoom];
  }

  fitBounds([[west, south], [east, north]]) {
    const wide = Math.max(east - west, 2 * (north - south), 0.01);
    this.easeTo({ center: [(west + east) / 2, (south + north) / 2], zoom: Math.max(0, Math.log2(360 / wide)) });
  }

  on() {}

  setRenderWorldCopies() {}

  triggerRepaint() {}
}
