// Rank x seq: the drill-down. Pixels come from pooled rows; labels and letters only where they fit.

const HEAT_LEFT = 92;
const HEAT_FOOT = 26;
const HEAT_TALLEST = 460;

class HeatMap {
  constructor(view) {
    this.view = view;
    this.rows = null;
    this.details = make("details", "", make("summary", "", "Show the heat map of the chosen group"));
    this.canvas = make("canvas", "");
    this.canvas.id = "heat-canvas";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Heat map: one row per rank, one column per operation");
    this.canvas.setAttribute("aria-describedby", "heat-says heat-cursor");
    this.says = make("p", "caption");
    this.says.id = "heat-says";
    this.cursor = make("p", "detail");
    this.cursor.id = "heat-cursor";
    this.cursor.setAttribute("aria-live", "polite");
    const body = make("div", "", this.says, cellLegend(), make("div", "picture", this.canvas), this.cursor);
    this.details.append(body);
    document.getElementById("heat-body").replaceChildren(this.details);
    this.pixels = document.createElement("canvas");
    listenHeat(this);
    this.details.addEventListener("toggle", () => this.details.open && view.changed());
  }

  take(group) {
    timed("heat-build", () => (this.rows = new HeatRows(group, this.view)));
    this.reset();
    this.column = this.rows.columns - 1;
    const total = this.rows.members.length;
    this.says.replaceChildren(
      words(`${groupTitle(group)}: ${plural(total, "rank")}, odd ones on top, seq ${group.firstSeq} to ${group.lastSeq}. Small cohorts are drawn taller; a pixel that stands for many shows the worst. `),
      words("Arrows move, + and − zoom, Shift with arrows pans, 0 shows all; click, then wheel or drag."),
    );
  }

  reset() {
    this.window = { top: 0, bottom: this.rows.units, left: 0, right: this.rows.columns };
  }

  draw(colours) {
    if (!this.details.open) return;
    const group = this.view.job.groups[this.view.group];
    if (group.lastSeq < group.firstSeq || !group.ranks.length) {
      this.says.replaceChildren(words(`${groupTitle(group)}: no operation was recorded.`));
      sized(this.canvas, 10, 1);
      this.rows = null;
      return;
    }
    if (this.rows?.group !== group) this.take(group);
    this.width = roomFor(this.canvas) - HEAT_LEFT;
    this.height = Math.min(HEAT_TALLEST, this.rows.members.length * 28);
    this.passed = runningCount(this.rows.members, group, this.view);
    timed("redraw-heat", () => {
      const context = sized(this.canvas, this.width + HEAT_LEFT, this.height + HEAT_FOOT);
      this.paint(colours);
      context.imageSmoothingEnabled = false;
      context.drawImage(this.pixels, HEAT_LEFT, 0);
      this.drawLetters(context, colours);
      this.drawGutter(context, colours);
      this.drawFoot(context, colours);
      this.drawCursor(context, colours);
    });
  }

  /** Fills the pixel canvas: per line the rows that cover it, per pixel the worst of its columns. */
  paint(colours) {
    const { width, height, rows } = this;
    if (this.pixels.width !== width || this.pixels.height !== height) Object.assign(this.pixels, { width, height });
    const context = this.pixels.getContext("2d");
    const image = context.createImageData(width, height);
    const out = new Uint32Array(image.data.buffer);
    const inks = inksOf(colours);
    const edges = this.columnEdges();
    const line = new Uint8Array(width);
    let before = "";
    for (let y = 0; y < height; y++) {
      const [from, to] = this.membersAt(y);
      const ids = rows.covering(from, to);
      const key = ids.join();
      if (key !== before) poolLine(line, ids.map((id) => rows.bank[id]), edges);
      before = key;
      const palette = this.passed[to] > this.passed[from] ? inks.full : inks.dim;
      for (let x = 0, at = y * width; x < width; x++, at++) {
        const worst = line[x];
        const other = worst === 4 ? ((x + y) & 7) < 2 : worst === 1 && ((x & 3) | (y & 3)) === 0;
        out[at] = palette[other ? worst + 8 : worst];
      }
    }
    context.putImageData(image, 0, 0);
  }

  columnEdges() {
    const { left, right } = this.window;
    const edges = new Int32Array(this.width + 1);
    for (let x = 0; x <= this.width; x++) edges[x] = Math.floor(left + (x * (right - left)) / this.width);
    return edges;
  }

  membersAt(y) {
    const { top, bottom } = this.window;
    const step = (bottom - top) / this.height;
    const from = this.rows.placeAt(top + y * step);
    return [from, Math.max(from + 1, this.rows.placeAt(top + (y + 1) * step))];
  }

  x(column) {
    const { left, right } = this.window;
    return HEAT_LEFT + ((column - left) / (right - left)) * this.width;
  }

  y(place) {
    const { top, bottom } = this.window;
    return ((this.rows.unitOf(place) - top) / (bottom - top)) * this.height;
  }

  /** Places in the order whose rows are in sight and at least so many pixels high, with that height. */
  tallRows(least) {
    const rows = [];
    const end = this.membersAt(this.height - 1)[1];
    for (let place = this.membersAt(0)[0]; place < end; place++) {
      const high = this.y(place + 1) - this.y(place);
      if (high >= least) rows.push([place, high]);
    }
    return rows;
  }

  /** Letters of the operation in each cell that has room, and a frame around those that differ. */
  drawLetters(context, colours) {
    const wide = this.x(1) - this.x(0);
    if (wide < 22) return;
    const { left, right } = this.window;
    const { ops, groups } = this.view.job;
    const codes = groups[this.view.group].op;
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [place, high] of this.tallRows(12)) {
      for (let column = Math.floor(left); column < right; column++) {
        const name = CELLS[CODE_OF_WORST[this.rows.worstAt(place, column)]].name;
        const text = name === "no evidence" ? "" : name === "not reached" ? "—" : (ops[codes[column]]?.code ?? "");
        context.fillStyle = name === "completed" ? colours.faint : "#000";
        context.fillText(text, this.x(column) + wide / 2, this.y(place) + high / 2);
        if (name === "differs") {
          context.strokeStyle = colours.ink;
          context.lineWidth = 3;
          context.strokeRect(this.x(column) + 1.5, this.y(place) + 1.5, wide - 3, high - 3);
        }
      }
    }
  }

  /** Beside the rows: the state of the ranks as a strip with letters, and their numbers where there is room. */
  drawGutter(context, colours) {
    const { job, indexOf } = this.view;
    const group = this.rows.group;
    context.clearRect(0, 0, HEAT_LEFT, this.height);
    context.textBaseline = "middle";
    let run = { from: 0, state: -1 };
    for (let y = 0; y <= this.height; y++) {
      const state = y < this.height ? this.worstState(...this.membersAt(y), job, indexOf, group) : -2;
      if (state === run.state) continue;
      if (run.state >= 0) this.drawStrip(context, colours, run, y);
      run = { from: y, state };
    }
    context.fillStyle = colours.ink;
    context.textAlign = "right";
    for (const [place, high] of this.tallRows(11)) {
      const rank = group.ranks[this.rows.members[place]];
      context.font = `${job.suspect[indexOf.get(rank)] ? 800 : 400} 11px ${FONT}`;
      context.fillText(`rank ${rank}`, HEAT_LEFT - 22, this.y(place) + high / 2);
    }
  }

  worstState(from, to, job, indexOf, group) {
    let worst = job.state[indexOf.get(group.ranks[this.rows.members[from]])];
    for (let place = from + 1; place < to; place++) {
      const state = job.state[indexOf.get(group.ranks[this.rows.members[place]])];
      if (STATES[state].worst > STATES[worst].worst) worst = state;
    }
    return worst;
  }

  drawStrip(context, colours, run, end) {
    context.fillStyle = colours.states[run.state];
    context.fillRect(HEAT_LEFT - 18, run.from, 15, end - run.from);
    if (end - run.from < 10) return;
    context.fillStyle = colours.onStates[run.state];
    context.font = `700 11px ${FONT}`;
    context.textAlign = "center";
    context.fillText(STATES[run.state].letter, HEAT_LEFT - 10.5, (run.from + end) / 2 + 0.5);
  }

  drawFoot(context, colours) {
    const { left, right } = this.window;
    const group = this.rows.group;
    const every = Math.max(1, Math.ceil((right - left) / (this.width / 90)));
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.fillStyle = colours.faint;
    for (let column = Math.ceil(left / every) * every; column < right; column += every) {
      const middle = (this.x(column) + this.x(column + 1)) / 2;
      context.fillText(String(group.firstSeq + column), Math.min(middle, HEAT_LEFT + this.width - 22), this.height + 10);
    }
    const divergence = this.view.verdict.divergence;
    const at = group.isDivergence && divergence ? divergence.seq - group.firstSeq : -1;
    if (at < left || at >= right) return;
    const x = (this.x(at) + this.x(at + 1)) / 2;
    context.fillStyle = colours.ink;
    context.beginPath();
    context.moveTo(x - 6, this.height + 9);
    context.lineTo(x + 6, this.height + 9);
    context.lineTo(x, this.height);
    context.fill();
  }

  placeOfSelected() {
    const rank = this.view.job.ranks[this.view.selected];
    return this.rows.members.findIndex((member) => this.rows.group.ranks[member] === rank);
  }

  drawCursor(context, colours) {
    const place = this.placeOfSelected();
    if (place < 0) return;
    const high = Math.max(3, this.y(place + 1) - this.y(place));
    const wide = Math.max(3, this.x(1) - this.x(0));
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(HEAT_LEFT, this.y(place) - 1, this.width, high + 2);
    context.strokeRect(this.x(this.column) - 1, this.y(place) - 2, wide + 2, high + 4);
    this.cursor.replaceChildren(words(this.describe(place, this.column).join(" · ")));
  }

  describe(place, column) {
    const group = this.rows.group;
    const rank = group.ranks[this.rows.members[place]];
    const op = this.view.job.ops[group.op[column]]?.name;
    const cell = CELLS[CODE_OF_WORST[this.rows.worstAt(place, column)]];
    return [`rank ${rank}`, `seq ${group.firstSeq + column}${op ? ` ${short(op, 40)}` : ""}`, cell.name];
  }
}

/** The worst of these rows under each pixel; where a cell is wider than a pixel, the cell itself. */
function poolLine(line, rows, edges) {
  line.fill(0);
  for (const row of rows) {
    for (let x = 0; x < line.length; x++) {
      let worst = line[x];
      const from = edges[x];
      const to = edges[x + 1] > from ? edges[x + 1] : from + 1;
      for (let c = from; c < to; c++) if (row[c] > worst) worst = row[c];
      line[x] = worst;
    }
  }
}

/** passed[p]: how many of the first p members pass the filter. */
function runningCount(members, group, view) {
  const passed = new Int32Array(members.length + 1);
  members.forEach((member, p) => (passed[p + 1] = passed[p] + view.passing[view.indexOf.get(group.ranks[member])]));
  return passed;
}

/** Per badness the pixel, at +8 its second colour (stripes, dots), so that print and colour-blind eyes can tell. */
function inksOf(colours) {
  const [full, dim] = [new Uint32Array(16), new Uint32Array(16)];
  CODE_OF_WORST.forEach((code, worst) => {
    const pairs = [[worst, colours.cells[code]], [worst + 8, CELLS[code].pattern === "dots" ? colours.faint : colours.ink]];
    for (const [at, colour] of pairs) {
      full[at] = pixelOf(colour, colours.paper, 1);
      dim[at] = pixelOf(colour, colours.paper, DIM);
    }
  });
  return { full, dim };
}

function pixelOf(colour, paper, share) {
  const [over, under] = [colour, paper].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const [r, g, b] = over.map((value, c) => Math.round(value * share + under[c] * (1 - share)));
  return (255 << 24) | (b << 16) | (g << 8) | r;
}

function cellLegend() {
  return make("p", "marks", ...CELLS.map((cell) => make("span", "", make("i", `swatch cell-${cell.name.replace(" ", "-")}`), cell.name)));
}
