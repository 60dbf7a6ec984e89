// One tile per rank, laid out as the mesh is: a lost column, row or node shows as a shape.

const TILES = [76, 60, 46, 34, 26, 20, 16, 13, 11, 9, 7, 6, 5, 4, 3];
const MESH_HEIGHT = 430;
const BLOCK_GAP = 10;
const BLOCK_LABEL = 14;
// Room for the frame of a suspect at the border.
const EDGE = 6;

class Mesh {
  constructor(view) {
    this.view = view;
    this.canvas = document.getElementById("mesh-canvas");
    this.cells = cellsOf(view.job);
    this.layout = null;
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const hit = this.rankAt(event.clientX - box.left, event.clientY - box.top);
      if (hit >= 0) view.select(hit);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    tooltip(this.canvas, (x, y) => {
      const hit = this.rankAt(x, y);
      return hit < 0 ? null : describeRank(view, hit);
    });
  }

  draw(colours) {
    const width = roomFor(this.canvas);
    if (!this.layout || this.layout.width !== width) this.layout = layoutOf(this.cells, width);
    const { tile, height } = this.layout;
    const context = sized(this.canvas, width, height);
    const gap = tile > 30 ? 4 : tile > 6 ? 1 : 0;
    this.drawLabels(context, colours);
    for (let i = 0; i < this.view.job.ranks.length; i++) this.drawTile(context, colours, i, tile - gap);
    this.outline(context, colours, tile - gap);
    context.globalAlpha = 1;
  }

  drawLabels(context, colours) {
    if (!this.layout.labelled) return;
    context.fillStyle = colours.faint;
    context.font = `11px ${FONT}`;
    context.textBaseline = "top";
    context.textAlign = "left";
    this.layout.blocks.forEach(({ x, y, text }) => context.fillText(text, x, y, this.layout.blockWidth));
  }

  drawTile(context, colours, i, size) {
    const { job, passing } = this.view;
    const [x, y] = this.placeOf(i);
    const state = job.state[i];
    context.globalAlpha = passing[i] ? 1 : DIM;
    context.fillStyle = colours.states[state];
    context.fillRect(x, y, size, size);
    context.fillStyle = context.strokeStyle = colours.onStates[state];
    if (size < 12) {
      if (size >= 4) smallMark(context, state, x, y, size);
      return;
    }
    context.textAlign = "center";
    context.textBaseline = "middle";
    const roomy = size >= 40;
    context.font = `700 ${Math.round(roomy ? size * 0.34 : size * 0.62)}px ${FONT}`;
    context.fillText(STATES[state].letter, x + size / 2, y + size * (roomy ? 0.4 : 0.54));
    if (roomy) {
      context.font = `${size >= 56 ? 11 : 10}px ${FONT}`;
      context.fillText(`${size >= 56 ? "rank " : ""}${job.ranks[i]}`, x + size / 2, y + size * 0.78);
    }
  }

  outline(context, colours, size) {
    const { job, passing, selected } = this.view;
    const thick = size >= 12 ? 4 : 2.5;
    const suspects = [];
    for (let i = 0; i < job.ranks.length; i++) if (job.suspect[i]) suspects.push(i);
    for (const i of suspects) {
      const [x, y] = this.placeOf(i);
      context.globalAlpha = passing[i] ? 1 : DIM;
      // A ring of paper between tile and frame: a dark tile shows its frame too.
      this.ring(context, colours.paper, x, y, size, 1, 2);
      this.ring(context, colours.ink, x, y, size, 2 + thick / 2, thick);
    }
    context.globalAlpha = 1;
    if (size < 40) suspects.slice(0, 3).forEach((i) => this.callOut(context, colours, i, size));
    if (selected < 0) return;
    const [x, y] = this.placeOf(selected);
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.setLineDash([4, 3]);
    context.strokeRect(x - 3, y - 3, size + 6, size + 6);
    context.setLineDash([]);
  }

  ring(context, colour, x, y, size, off, thick) {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.strokeRect(x - off, y - off, size + 2 * off, size + 2 * off);
  }

  callOut(context, colours, i, size) {
    const [x, y] = this.placeOf(i);
    const text = `rank ${this.view.job.ranks[i]}`;
    context.font = `700 12px ${FONT}`;
    context.textBaseline = "middle";
    const wide = context.measureText(text).width + 10;
    const left = x + size + 6 + wide < this.layout.width ? x + size + 6 : x - wide - 6;
    const top = Math.min(Math.max(y + size / 2 - 9, 0), this.layout.height - 18);
    context.fillStyle = colours.ink;
    context.fillRect(left, top, wide, 18);
    context.fillStyle = colours.paper;
    context.textAlign = "left";
    context.fillText(text, left + 5, top + 9.5);
  }

  placeOf(i) {
    const { blocks, tile, columns, labelled } = this.layout;
    const cell = this.layout.cells[i];
    const block = blocks[Math.floor(cell / this.layout.perBlock)];
    const inside = cell % this.layout.perBlock;
    return [block.x + (inside % columns) * tile + EDGE, block.y + (labelled ? BLOCK_LABEL : 0) + Math.floor(inside / columns) * tile + EDGE];
  }

  rankAt(x, y) {
    if (!this.layout) return -1;
    const { tile } = this.layout;
    for (let i = 0; i < this.view.job.ranks.length; i++) {
      const [left, top] = this.placeOf(i);
      if (x >= left && x < left + tile && y >= top && y < top + tile) return i;
    }
    return -1;
  }

  /** Arrows go to the nearest tile in that direction, Home and End to the first and last rank. */
  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const last = this.view.job.ranks.length - 1;
    if (event.key === "Home" || event.key === "End") this.view.select(event.key === "Home" ? 0 : last);
    else if (step) this.view.select(this.view.selected < 0 ? 0 : this.neighbour(this.view.selected, ...step));
    else return;
    event.preventDefault();
  }

  neighbour(from, dx, dy) {
    const [x, y] = this.placeOf(from);
    let best = from;
    let nearest = Infinity;
    for (let i = 0; i < this.view.job.ranks.length; i++) {
      const [left, top] = this.placeOf(i);
      const along = (left - x) * dx + (top - y) * dy;
      const aside = Math.abs((left - x) * dy) + Math.abs((top - y) * dx);
      if (along > 0 && along + 4 * aside < nearest) {
        nearest = along + 4 * aside;
        best = i;
      }
    }
    return best;
  }
}

/** The rank's cell counted through all axes, and how many trailing axes make one block of tiles. */
function cellsOf(job) {
  const axes = job.axes;
  const cells = new Float64Array(job.ranks.length);
  for (let i = 0; i < cells.length; i++) {
    let cell = 0;
    for (let a = 0; a < axes.length; a++) cell = cell * axes[a].size + job.position[i * axes.length + a];
    cells[i] = cell;
  }
  return { axes, cells };
}

function layoutOf({ axes, cells }, width) {
  const depth = axes.length;
  const inner = depth > 1 ? axes[depth - 1].size : 1;
  const rows = depth > 2 || (depth === 2 && axes[0].size <= 24) ? axes[depth - 2].size : 1;
  const shapes = depth > 1 ? [blocksOf(axes, inner, rows), blocksOf(axes, 1, 1)] : [blocksOf(axes, 1, 1)];
  for (const shape of shapes) {
    for (const tile of TILES) {
      const layout = flow(shape, tile, width, cells);
      if (layout && layout.height <= MESH_HEIGHT) return layout;
    }
  }
  return flow(shapes[shapes.length - 1], TILES[TILES.length - 1], width, cells);
}

function blocksOf(axes, columns, rows) {
  const total = axes.reduce((product, axis) => product * axis.size, 1);
  return { axes, columns, rows, perBlock: columns * rows, count: Math.ceil(total / (columns * rows)) };
}

function flow(shape, tile, width, cells) {
  const single = shape.perBlock === 1;
  const labelled = !single && shape.rows > 1 && shape.count > 1 && shape.columns * tile >= 44;
  const gap = single ? 0 : shape.rows > 1 ? BLOCK_GAP : Math.max(2, tile / 3);
  const blockWidth = shape.columns * tile + gap;
  const blockHeight = shape.rows * tile + (shape.rows > 1 ? gap : 0) + (labelled ? BLOCK_LABEL : 0);
  let across = Math.floor((width - 2 * EDGE + gap) / blockWidth);
  if (across < 1) return null;
  // Plain tiles in lines of 8, 16, 32 ...: the ranks of a node stay together.
  if (single && across > 8) across = 2 ** Math.floor(Math.log2(across));
  const blocks = Array.from({ length: shape.count }, (_, b) => ({
    x: (b % across) * blockWidth,
    y: Math.floor(b / across) * blockHeight,
    text: labelled ? blockName(shape.axes, b) : "",
  }));
  const height = Math.ceil(shape.count / across) * blockHeight + 2 * EDGE;
  return { width, height, tile, columns: shape.columns, perBlock: shape.perBlock, blocks, blockWidth, labelled, cells };
}

function blockName(axes, block) {
  const outer = axes.slice(0, -2);
  const names = [];
  for (let a = outer.length - 1; a >= 0; a--) {
    names.unshift(`${short(outer[a].name, 12)} ${block % outer[a].size}`);
    block = Math.floor(block / outer[a].size);
  }
  return names.join(" ");
}

function meshSays(view) {
  const { job } = view;
  const counts = STATES.map(() => 0);
  job.state.forEach((state) => counts[state]++);
  const parts = counts.map((count, s) => (count ? `${number(count)} ${STATES[s].name}` : "")).filter(Boolean);
  const named = job.axes.map((axis) => `${short(axis.name, 20)} ${axis.size}`).join(" × ");
  const axes = job.axes.length > 1 ? `${plural(job.ranks.length, "rank")}, ${named}` : plural(job.ranks.length, "rank");
  const suspects = job.suspect.reduce((sum, one) => sum + one, 0);
  return `${axes}: ${parts.join(", ")}.${suspects ? ` Thick outline: ${plural(suspects, "suspect")}.` : ""}`;
}
