"use strict";
// Draws the heatmap and moves about in it. Everything else on the page stands without this.
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const canvas = $("map");
  const context = canvas.getContext("2d");
  const source = $("data");
  const LEFT = 122, BOTTOM = 24, TOP = 4;
  // Pixels of a row, and the least of an area: room for its name.
  const ROW = 5, LINE = 14;

  let model = null;
  let view = null;
  let cross = null;
  let colours = null;
  let drawing = 0;
  let kept = {};

  // ---- data ----

  async function inflate(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // The streams of a level as parts: first and past-the-last unit, heat, shares known and unknown.
  async function unpack(level) {
    const bytes = await inflate(level.packed);
    const pieces = level.parts.length;
    const first = new Uint32Array(pieces + 1);
    for (let i = 0; i < pieces; i++) first[i + 1] = first[i] + level.parts[i];
    const count = first[pieces];
    const start = new Uint32Array(count), end = new Uint32Array(count);
    let gaps = 0, lengths = level.streams[0];
    const heats = lengths + level.streams[1], seens = heats + level.streams[2], unknowns = seens + level.streams[3];
    for (let i = 0; i < pieces; i++) {
      let at = 0;
      for (let part = first[i]; part < first[i + 1]; part++) {
        let scale = 1, byte;
        do { byte = bytes[gaps++]; at += (byte & 127) * scale; scale *= 128; } while (byte > 127);
        start[part] = at;
        scale = 1;
        do { byte = bytes[lengths++]; at += (byte & 127) * scale; scale *= 128; } while (byte > 127);
        end[part] = at;
      }
    }
    return {
      from: Float64Array.from(level.from), to: Float64Array.from(level.to), first, start, end,
      heat: bytes.subarray(heats, seens), seen: bytes.subarray(seens, unknowns), unknown: bytes.subarray(unknowns, unknowns + count),
    };
  }

  // Areas on an axis from 0 to 1, by the rows that they have in other heatmaps.
  function laidOut({ areas, spaces }) {
    const weight = (area) => Math.max(area.rows * ROW, LINE);
    const all = areas.reduce((sum, area) => sum + weight(area), 0) || 1;
    $("plot").style.minHeight = `${all + TOP + BOTTOM}px`;
    let top = 0;
    return areas.map((area) => {
      const share = weight(area) / all;
      const parts = area.parts.map(([start, first, space]) => ({ address: BigInt(start), first, space: spaces[space] }));
      const one = parts.every((part) => part.space === parts[0].space);
      const title = spaces.length > 1 && one ? two(area.mapping, parts[0].space, 24) : area.mapping;
      const laid = { ...area, parts, title, past: area.first + area.units, top, share };
      top += share;
      return laid;
    });
  }

  // The part of an area that holds a unit.
  function partOf(area, unit) {
    return area.parts[Math.max(0, firstWhere(0, area.parts.length, (i) => area.parts[i].first > unit) - 1)];
  }

  function addressOf(area, unit) {
    const part = partOf(area, unit);
    return part.address + BigInt(unit - part.first) * BigInt(model.unit_bytes);
  }

  async function load(doc) {
    const next = { ...doc, areas: laidOut(doc), levels: [], packed: null };
    for (const level of doc.levels) {
      next.levels.push(await unpack(level));
      if (next.levels.length === 1) adopt(next);
      else if (model === next) schedule();
    }
    root.dataset.state = "ready";
  }

  // Takes new data over. Who looks at all of it goes on doing so; who has zoomed in stays there.
  function adopt(next) {
    const before = model;
    model = next;
    const sees = (edge, all) => Math.abs(edge - all) < 1;
    if (!view || (before && sees(view.t0, before.from_ns) && sees(view.t1, before.to_ns))) {
      view = { ...(view || { y0: 0, y1: 1 }), t0: next.from_ns, t1: next.to_ns };
    } else if (before && sees(view.t1, before.to_ns)) {
      const grown = next.to_ns - before.to_ns;
      view = { ...view, t0: view.t0 + grown, t1: view.t1 + grown };
    }
    for (const [name, html] of Object.entries(next.parts)) {
      const part = $("part-" + name);
      if (part && part.dataset.is !== html) { part.innerHTML = html; part.dataset.is = html; }
    }
    $("part-map").hidden = true;
    for (const id of ["plot", "tools", "keys"]) $(id).hidden = false;
    clamp();
    schedule();
  }

  // ---- geometry ----

  const width = () => canvas.clientWidth;
  const right = () => (width() > 700 ? 170 : 8);
  const plotWidth = () => Math.max(10, width() - LEFT - right());
  const plotHeight = () => Math.max(10, canvas.clientHeight - TOP - BOTTOM);
  const xOf = (t) => LEFT + (t - view.t0) / (view.t1 - view.t0) * plotWidth();
  const yOf = (y) => TOP + (y - view.y0) / (view.y1 - view.y0) * plotHeight();
  const timeAt = (x) => view.t0 + (x - LEFT) / plotWidth() * (view.t1 - view.t0);
  const placeAt = (y) => view.y0 + (y - TOP) / plotHeight() * (view.y1 - view.y0);

  // The first index at which `test` holds, of a run where it fails and then holds.
  function firstWhere(from, end, test) {
    while (from < end) {
      const middle = (from + end) >> 1;
      if (test(middle)) end = middle; else from = middle + 1;
    }
    return from;
  }

  function clamp() {
    const all = model.to_ns - model.from_ns;
    const fit = (low, high, least, from, to) => {
      const size = Math.min(Math.max(high - low, least), to - from);
      const start = Math.min(Math.max(low + (high - low - size) / 2, from), to - size);
      return [start, start + size];
    };
    [view.t0, view.t1] = fit(view.t0, view.t1, Math.min(all, 1e6), model.from_ns, model.to_ns);
    [view.y0, view.y1] = fit(view.y0, view.y1, 1e-9, 0, 1);
    canvas.dataset.view = [view.t0, view.t1, view.y0, view.y1].join(" ");
  }

  // The finest level whose visible pieces are at least a pixel wide and not too many to draw.
  function levelFor(pixels) {
    const fine = (level) => {
      const from = firstWhere(0, level.to.length, (i) => level.to[i] > view.t0);
      const end = firstWhere(0, level.from.length, (i) => level.from[i] >= view.t1);
      return end - from <= pixels && level.first[end] - level.first[from] <= 2e6;
    };
    return model.levels.findLast(fine) || model.levels[0];
  }

  // ---- colours ----

  function readColours() {
    const probe = document.createElement("span");
    document.body.append(probe);
    const style = getComputedStyle(probe);
    const resolved = (value) => { probe.style.color = value; return style.color; };
    const packed = (value) => {
      const [r, g, b] = resolved(value).match(/[\d.]+/g).map(Number);
      return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    };
    const steps = Number(canvas.dataset.steps);
    const ramp = Array.from({ length: steps }, (_, step) => packed(`var(--h${step})`));
    // Step 0 is exactly cold; heat takes the others by its square root.
    const step = (heat) => (heat === 0 ? 0 : 1 + Math.min(steps - 2, Math.floor(Math.sqrt(heat / 255) * (steps - 1))));
    const heat = Uint32Array.from({ length: 256 }, (_, value) => ramp[step(value)]);
    colours = { heat, unseen: packed("var(--unseen)"), unknown: packed("var(--unknown)"), ink: resolved("var(--ink)"), faint: resolved("var(--faint)"), line: resolved("var(--line)") };
    probe.remove();
  }

  // ---- drawing ----

  function schedule() {
    if (!drawing) drawing = requestAnimationFrame(() => { drawing = 0; draw(); });
  }

  function draw() {
    if (!model || !view) return;
    if (!colours) readColours();
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width() * scale), Math.round(canvas.clientHeight * scale)];
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, w, h);
    drawHeat(scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = "12px system-ui, sans-serif";
    drawAreas();
    drawNames();
    drawTime();
    if (cross) drawCross();
  }

  // The visible areas: units to pixel rows, and the rows that they take.
  function bands(rows) {
    const size = view.y1 - view.y0;
    return model.areas.map((area) => {
      const scale = area.share / area.units / size * rows;
      const top = (area.top - view.y0) / size * rows;
      const low = Math.max(0, top), high = Math.min(rows, top + area.share / size * rows);
      return { area, scale, offset: top - area.first * scale, low, high };
    }).filter((band) => band.high > band.low);
  }

  function drawHeat(scale) {
    const columns = Math.round(plotWidth() * scale), rows = Math.round(plotHeight() * scale);
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const visible = bands(rows);
    fillMapped(pixels, columns, visible);
    const level = levelFor(columns / scale);
    const column = columnsOf(level, visible, rows);
    const perNano = columns / (view.t1 - view.t0);
    let piece = firstWhere(0, level.to.length, (i) => level.to[i] > view.t0);
    for (; piece < level.from.length && level.from[piece] < view.t1; piece++) {
      const x0 = Math.max(0, Math.floor((level.from[piece] - view.t0) * perNano));
      const x1 = Math.min(columns, Math.max(x0 + 1, Math.ceil((level.to[piece] - view.t0) * perNano)));
      const colour = column(piece);
      for (let row = 0; row < rows; row++) {
        if (colour[row] === 0) continue;
        for (let x = x0, at = row * columns + x0; x < x1; x++) pixels[at++] = colour[row];
      }
    }
    clearUnmapped(pixels, columns, rows, visible);
    context.putImageData(image, Math.round(LEFT * scale), Math.round(TOP * scale));
  }

  // The colours of pieces by pixel rows, 0 where nothing was looked at. They are kept for as long
  // as only time moves.
  function columnsOf(level, visible, rows) {
    const peak = $("peak").checked;
    const key = [view.y0, view.y1, rows, peak].join(" ");
    if (kept.level !== level || kept.key !== key || kept.colours !== colours) {
      kept = { level, key, colours, columns: new Map() };
    }
    const sum = new Float32Array(rows + 1), weight = new Float32Array(rows + 1), doubt = new Float32Array(rows + 1);
    return (piece) => {
      const known = kept.columns.get(piece);
      if (known) return known;
      sum.fill(0); weight.fill(0); doubt.fill(0);
      for (const band of visible) addParts(level, piece, band, sum, weight, doubt, peak);
      const column = new Uint32Array(rows);
      for (let row = 0; row < rows; row++) {
        // Unknown is what is so for the greater part; among peaks, a known hot part shows there.
        const hidden = doubt[row] > weight[row] && !(peak && sum[row] >= model.hot_frequency * 255);
        if (weight[row] === 0 || hidden) {
          if (doubt[row] > 0) column[row] = colours.unknown;
          continue;
        }
        const heat = peak ? sum[row] : sum[row] / weight[row];
        column[row] = colours.heat[Math.min(255, Math.ceil(heat))];
      }
      kept.columns.set(piece, column);
      return column;
    };
  }

  // Adds up a piece's parts in a band by pixel rows, each as far as it covers the row.
  function addParts(level, piece, band, sum, weight, doubt, peak) {
    const { scale, offset, low, high, area } = band;
    const least = Math.max(area.first, Math.floor((low - offset) / scale));
    const most = Math.min(area.past, Math.ceil((high - offset) / scale));
    const last = level.first[piece + 1];
    let part = firstWhere(level.first[piece], last, (i) => level.end[i] > least);
    for (; part < last && level.start[part] < most; part++) {
      const heat = level.heat[part], seen = level.seen[part], unknown = level.unknown[part];
      const from = Math.max(low, level.start[part] * scale + offset);
      const to = Math.min(high, level.end[part] * scale + offset);
      for (let row = Math.floor(from); row < to; row++) {
        const cover = Math.min(to, row + 1) - Math.max(from, row), share = cover * seen;
        if (!(cover > 0)) continue;
        doubt[row] += cover * unknown;
        if (share === 0) continue;
        weight[row] += share;
        if (peak) sum[row] = Math.max(sum[row], heat); else sum[row] += share * heat;
      }
    }
  }

  // What is mapped at a moment: from when until when, and which mappings.
  function momentAt(t) {
    const moments = model.layouts.moments;
    return moments[Math.max(0, firstWhere(0, moments.length, (i) => moments[i].from > t) - 1)];
  }

  // The pixel columns of each moment, with it and the next one: what is mapped in neither is not
  // mapped there.
  function eachMoment(columns, act) {
    const moments = model.layouts.moments;
    const perNano = columns / (view.t1 - view.t0);
    moments.forEach((moment, i) => {
      const next = moments[i + 1];
      const x0 = Math.max(0, Math.floor((moment.from - view.t0) * perNano));
      const x1 = Math.min(columns, Math.ceil(((next ? next.from : model.to_ns) - view.t0) * perNano));
      if (x1 > x0) act(x0, x1, next ? [moment, next] : [moment]);
    });
  }

  // The pixel rows of what is mapped at a moment.
  function eachMapped(moment, visible, act) {
    for (const band of visible) {
      for (const [first, past] of moment.mappings) {
        if (past <= band.area.first || first >= band.area.past) continue;
        const from = Math.floor(Math.max(band.low, first * band.scale + band.offset));
        const to = Math.min(band.high, past * band.scale + band.offset);
        for (let row = from; row < to; row++) act(row);
      }
    }
  }

  function fillMapped(pixels, columns, visible) {
    eachMoment(columns, (x0, x1, [moment]) => eachMapped(moment, visible, (row) => {
      pixels.fill(colours.unseen, row * columns + x0, row * columns + x1);
    }));
  }

  // Nothing is hot where nothing is mapped, although a piece of the pyramid may reach beyond.
  function clearUnmapped(pixels, columns, rows, visible) {
    if (!model.layouts.names.length) return;
    eachMoment(columns, (x0, x1, moments) => {
      const mapped = new Uint8Array(rows + 1);
      for (const moment of moments) eachMapped(moment, visible, (row) => { mapped[row] = 1; });
      for (let row = 0; row < rows; row++) if (!mapped[row]) pixels.fill(0, row * columns + x0, row * columns + x1);
    });
  }

  const hex = (address) => "0x" + address.toString(16);

  // Addresses at round places of each area, and a line between areas.
  function drawAreas() {
    context.textAlign = "right";
    context.textBaseline = "middle";
    let free = -Infinity;
    for (const { area, low, high, scale, offset } of bands(plotHeight())) {
      context.fillStyle = colours.faint;
      context.fillRect(LEFT - 6, TOP + low, 6, 1);
      if (low > 0) { context.fillStyle = colours.line; context.fillRect(LEFT, TOP + low, plotWidth(), 1); }
      const step = 2 ** Math.max(0, Math.ceil(Math.log2(36 / scale)));
      let at = area.first + Math.max(0, Math.floor((low - offset) / scale) - area.first);
      for (let count = 0; count < 100; count++) {
        const y = at * scale + offset;
        if (y >= high || at >= area.past) break;
        if (y >= low - 1 && y - free >= 14) {
          context.fillStyle = colours.faint;
          context.fillText(hex(addressOf(area, Math.round(at))), LEFT - 8, TOP + Math.min(Math.max(y, 6), plotHeight() - 4));
          context.fillRect(LEFT - 4, TOP + y, 4, 1);
          free = y;
        }
        const inArea = at - area.first;
        at = area.first + (Math.floor(inArea / step) + 1) * step;
      }
    }
  }

  const nameOf = (mapping) => model.layouts.names[mapping[2]];
  // Two names, each with its end and at least half of the room.
  function two(first, second, width) {
    const half = (width - 1) >> 1;
    const [a, b] = [width - 1 - second.length, width - 1 - first.length];
    return `${shortened(first, Math.max(half, a))} ${shortened(second, Math.max(width - 1 - half, b))}`;
  }

  const shortened = (name, room) => (name.length > room ? "…" + name.slice(1 - room) : name);

  // The names of the areas, at the right where there is room; small mappings have their own names
  // where they are large enough.
  function drawNames() {
    const moment = momentAt(view.t1 - 1);
    if (right() < 100 || !moment) return;
    context.textAlign = "left";
    context.fillStyle = colours.faint;
    let free = -Infinity;
    for (const band of bands(plotHeight())) {
      const { area } = band;
      const inside = (mapping) => mapping[1] > area.first && mapping[0] < area.past;
      const named = moment.mappings.filter(inside).map((mapping) => [mapping[0], mapping[1], nameOf(mapping)]);
      const many = area.rest && band.high - band.low > 13 * named.length;
      for (const [first, past, name] of many ? named : [[area.first, area.past, area.title]]) {
        const from = Math.max(band.low, first * band.scale + band.offset);
        const to = Math.min(band.high, past * band.scale + band.offset);
        const y = Math.max(from + 6, free + 13);
        if (to <= from || y > Math.max(to, from + 7)) continue;
        context.fillText(shortened(name, 24), LEFT + plotWidth() + 8, TOP + y, right() - 10);
        free = y;
      }
    }
  }

  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 144e5, 432e5, 864e5];

  function duration(ns, step) {
    const ms = ns / 1e6;
    if (ms < 1000 && step < 1000) return `${+ms.toFixed(3)} ms`;
    if (ms < 60000) return `${+(ms / 1000).toFixed(3)} s`;
    const seconds = +(ms / 1000 % 60).toFixed(step < 1000 ? 3 : 0), minutes = Math.floor(ms / 60000);
    const tail = seconds ? ` ${seconds} s` : "";
    return minutes < 60 ? `${minutes} min${tail}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min${tail}`;
  }

  function drawTime() {
    const y = TOP + plotHeight();
    const least = (view.t1 - view.t0) / 1e6 / Math.max(2, plotWidth() / 90);
    const step = STEPS.find((step) => step >= least) || Math.ceil(least / 864e5) * 864e5;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let ms = Math.ceil(view.t0 / 1e6 / step) * step; ms * 1e6 <= view.t1; ms += step) {
      const x = xOf(ms * 1e6);
      context.fillStyle = colours.faint;
      context.fillRect(x, y, 1, 5);
      if (x < LEFT + plotWidth() - 20 || right() > 100) context.fillText(duration(ms * 1e6, step), x, y + 8);
    }
  }

  function drawCross() {
    context.fillStyle = colours.ink;
    context.fillRect(LEFT, cross.y, plotWidth(), 1);
    context.fillRect(cross.x, TOP, 1, plotHeight());
  }

  // ---- what is where ----

  function at(x, y) {
    if (!model || x < LEFT || x >= LEFT + plotWidth() || y < TOP || y >= TOP + plotHeight()) return null;
    const t = timeAt(x), place = placeAt(y);
    const area = model.areas.findLast((area) => area.top <= place);
    if (!area) return null;
    const unit = Math.min(area.past - 1, area.first + Math.floor((place - area.top) / area.share * area.units));
    const moment = momentAt(t);
    const mapping = moment && moment.mappings.find((m) => m[0] <= unit && unit < m[1]);
    return { t, unit, area, name: mapping ? nameOf(mapping) : null, ...partAt(t, unit) };
  }

  function partAt(t, unit) {
    const level = levelFor(plotWidth());
    const piece = firstWhere(0, level.to.length, (i) => level.to[i] > t);
    if (piece === level.to.length || level.from[piece] > t) return {};
    const time = { from: level.from[piece], to: level.to[piece] };
    const part = firstWhere(level.first[piece], level.first[piece + 1], (i) => level.end[i] > unit);
    if (part === level.first[piece + 1] || level.start[part] > unit) return time;
    return { ...time, bytes: (level.end[part] - level.start[part]) * model.unit_bytes, heat: level.heat[part] / 255, seen: level.seen[part] / 255, unknown: level.unknown[part] / 255 };
  }

  function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (bytes >= 1023.5 && power < 5) { bytes /= 1024; power++; }
    return `${+bytes.toFixed(bytes < 100 ? 1 : 0)} ${units[power]}`;
  }

  function describe(here) {
    const percent = (share) => `${(share * 100).toFixed(1)} %`;
    const lines = [`${here.name ?? "not mapped"} · ${partOf(here.area, here.unit).space}`];
    lines.push(`${hex(addressOf(here.area, here.unit))} at ${duration(here.t, 100)}`);
    if (here.heat === undefined) lines.push("not looked at, or not resident");
    else {
      const hot = here.heat >= model.hot_frequency ? ", hot" : "";
      const frequency = `frequency ${percent(here.heat)}`;
      const where = here.seen > 0 ? `; ${frequency} where it is known` : "";
      const what = here.unknown > here.seen ? `unknown: too little evidence${where}` : `${frequency}${hot}`;
      lines.push(`${what} (${size(here.bytes)} over ${duration(here.to - here.from, 1)})`);
      // Shares are rounded each for itself: a last one may be short of nothing.
      const shares = [["known", here.seen], ["unknown", here.unknown], ["not looked at", 1 - here.seen - here.unknown]];
      const some = shares.filter(([, share]) => share > 0.004);
      if (some.length > 1) lines.push(some.map(([name, share]) => `${name} ${percent(share)}`).join(", "));
    }
    return lines.join("\n");
  }

  function show(x, y) {
    const tip = $("tip"), here = at(x, y);
    tip.hidden = !here;
    if (!here) return;
    tip.textContent = describe(here);
    const left = x + 16 + tip.offsetWidth > width() ? x - 16 - tip.offsetWidth : x + 16;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.min(y + 12, canvas.clientHeight - tip.offsetHeight)}px`;
  }

  // ---- moving ----

  function zoom(time, address, x = LEFT + plotWidth() / 2, y = TOP + plotHeight() / 2) {
    if (!view) return;
    const t = timeAt(x), place = placeAt(y);
    view.t0 = t - (t - view.t0) * time; view.t1 = t + (view.t1 - t) * time;
    view.y0 = place - (place - view.y0) * address; view.y1 = place + (view.y1 - place) * address;
    moved();
  }

  function pan(dx, dy) {
    if (!view) return;
    const time = dx / plotWidth() * (view.t1 - view.t0), place = dy / plotHeight() * (view.y1 - view.y0);
    view.t0 += time; view.t1 += time; view.y0 += place; view.y1 += place;
    moved();
  }

  function moved() { clamp(); schedule(); }

  function moveCross(dx, dy) {
    const start = cross || { x: LEFT + plotWidth() / 2, y: TOP + plotHeight() / 2 };
    const within = (value, low, size) => Math.min(Math.max(value, low), low + size - 1);
    cross = { x: within(start.x + dx, LEFT, plotWidth()), y: within(start.y + dy, TOP, plotHeight()) };
    show(cross.x, cross.y);
    const here = at(cross.x, cross.y);
    $("readout").textContent = here ? describe(here).replaceAll("\n", " · ") : "";
    schedule();
  }

  const actions = {
    in: () => zoom(0.5, 0.5), out: () => zoom(2, 2), time: () => zoom(0.5, 1), untime: () => zoom(2, 1),
    address: () => zoom(1, 0.5), unaddress: () => zoom(1, 2),
    reset: () => { if (view) { view = { t0: model.from_ns, t1: model.to_ns, y0: 0, y1: 1 }; moved(); } },
    peak: () => { $("peak").checked = !$("peak").checked; schedule(); },
  };
  const keys = { "+": "in", "=": "in", "-": "out", "−": "out", t: "time", T: "untime", a: "address", A: "unaddress", 0: "reset", Home: "reset", p: "peak" };
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = arrows[event.key];
    if (arrow && event.shiftKey) moveCross(arrow[0] * 8, arrow[1] * 8);
    else if (arrow) pan(arrow[0] * plotWidth() / 8, arrow[1] * plotHeight() / 8);
    else if (keys[event.key]) actions[keys[event.key]]();
    else if (event.key === "Escape") { cross = null; $("tip").hidden = true; schedule(); }
    else return;
    event.preventDefault();
  });

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp((event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 0.05 : 0.0015));
    zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, event.offsetX, event.offsetY);
    show(event.offsetX, event.offsetY);
  }, { passive: false });

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.offsetX, y: event.offsetY };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      pan(held.x - event.offsetX, held.y - event.offsetY);
      held = { x: event.offsetX, y: event.offsetY };
    }
    show(event.offsetX, event.offsetY);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(0.5, 0.5, event.offsetX, event.offsetY));

  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => actions[button.dataset.do]());
  }
  $("peak").addEventListener("change", schedule);

  // ---- theme ----

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  function themed() {
    $("theme").textContent = isDark() ? "Light" : "Dark";
    colours = null;
    schedule();
  }

  // A page opened as a file may have no storage.
  const stored = (act) => { try { return act(localStorage); } catch { return null; } };

  $("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored((storage) => storage.setItem("tierscope-theme", root.dataset.theme));
    themed();
  });
  dark.addEventListener("change", themed);
  const theme = stored((storage) => storage.getItem("tierscope-theme"));
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  $("theme").hidden = false;
  themed();
  new ResizeObserver(schedule).observe(canvas);

  // ---- where the data comes from ----

  const say = (text) => { if ($("status").textContent !== text) $("status").textContent = text; };
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  async function follow(url) {
    let tag = null, wait = 1000;
    for (;;) {
      try {
        const answer = await fetch(url, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
        if (answer.status === 200) {
          const doc = await answer.json();
          await load(doc);
          ({ tag, poll_ms: wait } = doc);
          if (!doc.live) return say("Ended");
        } else if (answer.status !== 304) throw new Error(`status ${answer.status}`);
        say("Live");
      } catch {
        say(model ? "Connection lost; trying again" : "Waiting for the first window");
        wait = 1000;
      }
      await pause(wait);
    }
  }

  if (source.dataset.url) follow(source.dataset.url);
  else load(JSON.parse(source.textContent)).catch((error) => {
    // The static map stays.
    say(`Not interactive: ${error.message}`);
    root.dataset.state = "failed";
  });
})();
