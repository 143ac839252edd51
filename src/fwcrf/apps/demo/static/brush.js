// Drawing of strokes on a canvas, by pointer or by keyboard.

export class Brush {
  constructor(canvas, { begin, changed, done }) {
    this.canvas = canvas;
    this.stroke = null;
    this.cursor = null; // position of the keyboard's brush, or null
    this.down = false;
    Object.assign(this, { begin, changed, done });
    canvas.addEventListener("pointerdown", (e) => this.#press(e));
    canvas.addEventListener("pointermove", (e) => this.#drag(e));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.#lift());
    canvas.addEventListener("keydown", (e) => this.#key(e));
    canvas.addEventListener("blur", () => { this.cursor = null; this.down = false; this.#lift(); this.changed(); });
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { width, height } = this.canvas;
    // The canvas is centred in its box and scaled to fit; the rest of the box is margin.
    const scale = Math.min(box.width / width, box.height / height);
    const x = (event.clientX - box.left - (box.width - width * scale) / 2) / scale - 0.5;
    const y = (event.clientY - box.top - (box.height - height * scale) / 2) / scale - 0.5;
    return [Math.round(10 * x) / 10, Math.round(10 * y) / 10];
  }

  #press(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.cursor = null;
    this.stroke = this.begin(this.#at(event));
    this.changed();
  }

  #drag(event) {
    if (!this.stroke) return;
    const [x, y] = this.#at(event);
    const [lx, ly] = this.stroke.points.at(-1);
    if (Math.hypot(x - lx, y - ly) < 1.5) return;
    this.stroke.points.push([x, y]);
    this.changed();
  }

  #lift() {
    if (!this.stroke) return;
    this.stroke = null;
    this.done();
  }

  #key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const { width, height } = this.canvas;
    this.cursor ??= [Math.round(width / 2), Math.round(height / 2)];
    if (event.key in moves) {
      const far = event.shiftKey ? 20 : 5;
      const [dx, dy] = moves[event.key];
      this.cursor = [Math.min(width - 1, Math.max(0, this.cursor[0] + far * dx)), Math.min(height - 1, Math.max(0, this.cursor[1] + far * dy))];
      if (this.down) this.stroke.points.push([...this.cursor]);
    } else if (event.key === " ") {
      this.down = !this.down;
      if (this.down) this.stroke = this.begin([...this.cursor]);
      else this.#lift();
    } else return;
    event.preventDefault();
    this.changed();
  }
}
