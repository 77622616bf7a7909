// The tokenizer in the page: `window.beamBpe` gives the ids that Python gives, from the data that
// `pages/encoder.py` writes into <script type="application/json" id="encoder-data">.
"use strict";

(() => {
  const FAR = 64; // characters read in vain, from which on a search notes where it was
  const MOST_CACHED = 50_000; // pieces of pre-tokens
  const LONGEST_CACHED = 200; // bytes

  // ---- Data

  function decodeBase64(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  function decodeNumbers(text) {
    const bytes = decodeBase64(text);
    const numbers = [];
    let value = 0;
    let scale = 1;
    for (const byte of bytes) {
      value += (byte & 0x7f) * scale;
      scale *= 128;
      if (byte < 0x80) {
        numbers.push(value);
        value = 0;
        scale = 1;
      }
    }
    return numbers;
  }

  function addUp(differences) {
    let sum = 0;
    return differences.map((difference) => (sum += difference));
  }

  // ---- Splitting

  // The class of each code point, or byte.
  function classTable(bounds, classes, ofBytes) {
    const table = new Uint8Array(ofBytes ? 256 : 0x110000);
    bounds.forEach((bound, i) => {
      table.fill(classes[i], bound, i + 1 < bounds.length ? bounds[i + 1] : table.length);
    });
    return table;
  }

  function readAutomaton(data) {
    return { table: Uint32Array.from(decodeNumbers(data.table)), starts: decodeNumbers(data.starts) };
  }

  function readStep(data) {
    return {
      ...readAutomaton(data),
      ofBytes: data.bytes,
      edge: data.edge,
      symbols: data.symbols,
      classOf: classTable(addUp(decodeNumbers(data.bounds)), decodeNumbers(data.classes), data.bytes),
      scouts: data.scouts.map((scout) => ({ ahead: scout.ahead, ...readAutomaton(scout) })),
    };
  }

  // The classes of the characters of a chunk, or of its bytes, and where each begins.
  function readUnits(step, bytes, begin, end) {
    const classes = new Uint8Array(end - begin);
    const places = new Uint32Array(end - begin + 1);
    let count = 0;
    for (let at = begin; at < end; count++) {
      const byte = bytes[at];
      places[count] = at;
      if (step.ofBytes || byte < 0x80) {
        classes[count] = step.classOf[byte];
        at += 1;
      } else if (byte < 0xe0) {
        classes[count] = step.classOf[((byte & 0x1f) << 6) | (bytes[at + 1] & 0x3f)];
        at += 2;
      } else if (byte < 0xf0) {
        const high = ((byte & 0x0f) << 12) | ((bytes[at + 1] & 0x3f) << 6);
        classes[count] = step.classOf[high | (bytes[at + 2] & 0x3f)];
        at += 3;
      } else {
        const high = ((byte & 0x07) << 18) | ((bytes[at + 1] & 0x3f) << 12);
        const low = ((bytes[at + 2] & 0x3f) << 6) | (bytes[at + 3] & 0x3f);
        classes[count] = step.classOf[high | low];
        at += 4;
      }
    }
    places[count] = end;
    return { classes, places, count };
  }

  // What the scouts find at each place of a chunk, as bits; null without scouts.
  function sendScouts(step, { classes, count }) {
    if (step.scouts.length === 0) return null;
    const found = new Uint8Array(count + 1);
    step.scouts.forEach(({ ahead, table, starts }, number) => {
      let state = starts[step.edge];
      const symbols = step.edge + 1;
      for (let i = 0; i <= count; i++) {
        const place = ahead ? count - i : i;
        const read = ahead ? place - 1 : place;
        const column = i < count ? classes[read] : step.edge;
        const entry = table[state * symbols + column];
        if (entry & 1) found[place] |= 1 << number;
        state = entry >>> 1;
      }
    });
    return found;
  }

  // The end of the match that begins at `from`, or -1. `hopeless` has the places and states from
  // which no match ends any more, without which a+b would take quadratic time.
  function findMatch(step, units, found, hopeless, from) {
    const { classes, count } = units;
    const { table, symbols, edge } = step;
    const columns = edge + 1;
    let match = -1;
    const read = (stops) => {
      let state = step.starts[from > 0 ? classes[from - 1] : edge];
      for (let at = from; ; at++) {
        const column = at < count ? classes[at] : edge;
        const entry = table[state * symbols + column + (found ? found[at] * columns : 0)];
        if (entry & 1) match = at;
        state = entry >>> 1;
        if (state === 0 || at === count) return at;
        if (at % FAR === 0 && stops(at, at * (table.length / symbols) + state)) return at;
      }
    };
    const stop = read((at, key) => hopeless.size > 0 && hopeless.has(key));
    const last = Math.max(match, from);
    if (stop - last >= FAR) {
      read((at, key) => {
        if (at >= last) hopeless.add(key);
        return at >= stop;
      });
    }
    return match;
  }

  // The ends of the pieces of a chunk.
  function splitChunk(step, bytes, begin, end, ends) {
    const units = readUnits(step, bytes, begin, end);
    const found = sendScouts(step, units);
    const hopeless = new Set();
    let place = 0;
    while (place < units.count) {
      let at = place;
      let match = -1;
      for (; at < units.count; at++) {
        match = findMatch(step, units, found, hopeless, at);
        if (match >= 0 && match !== place) break;
      }
      place = at > place ? at : match;
      ends.push(units.places[place]);
    }
  }

  // ---- Merging

  class Heap {
    constructor() {
      this.items = [];
    }

    static precedes(a, b) {
      return a.rank !== b.rank ? a.rank < b.rank : a.at < b.at;
    }

    push(item) {
      const { items } = this;
      let i = items.length;
      items.push(item);
      while (i > 0) {
        const parent = (i - 1) >> 1;
        if (!Heap.precedes(item, items[parent])) break;
        items[i] = items[parent];
        i = parent;
      }
      items[i] = item;
    }

    pop() {
      const { items } = this;
      const first = items[0];
      const last = items.pop();
      if (items.length === 0) return first;
      let i = 0;
      for (;;) {
        let child = 2 * i + 1;
        if (child >= items.length) break;
        if (child + 1 < items.length && Heap.precedes(items[child + 1], items[child])) child++;
        if (!Heap.precedes(items[child], last)) break;
        items[i] = items[child];
        i = child;
      }
      items[i] = last;
      return first;
    }
  }

  // Tokens are rows: indices among the ordinary tokens, in order of id. The row behind the last is
  // an unknown id that is not one of theirs.
  class Vocabulary {
    constructor(data) {
      this.ids = addUp(decodeNumbers(data.ids));
      this.rows = this.ids.length + 1;
      this.readMerges(decodeNumbers(data.merges));
      this.readBytes(decodeBase64(data.bytes), decodeNumbers(data.lengths));
      this.unknown = data.unknown;
      this.byteRows = decodeNumbers(data.byteRows).map((row) => row - 1);
      const specials = [...data.specials, ...data.normalizedSpecials];
      this.specials = new Map(specials.map(([text, id]) => [id, text]));
      this.rowOfId = new Map(this.ids.map((id, row) => [id, row]));
      this.unknownRow = this.rowOfId.get(data.unknown) ?? this.ids.length;
      this.wholeTokens = data.wholeTokens ? this.findWholeTokens() : null;
      this.characters = data.characters === null ? null : this.findCharacters(data.characters);
      this.joins = this.findJoins(data.characters);
      this.cache = new Map();
    }

    readMerges(numbers) {
      this.left = [];
      this.right = [];
      this.result = [];
      this.ranks = new Map();
      this.madeBy = new Int32Array(this.ids.length).fill(-1);
      let result = -1;
      for (let i = 0; i < numbers.length; i += 3) {
        const rank = this.result.length;
        const zigzag = numbers[i + 2];
        result += 1 + (zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2);
        this.left.push(numbers[i]);
        this.right.push(numbers[i + 1]);
        this.result.push(result);
        this.ranks.set(numbers[i] * this.rows + numbers[i + 1], rank);
        if (this.madeBy[result] < 0) this.madeBy[result] = rank;
      }
    }

    readBytes(bytes, lengths) {
      this.given = new Map();
      this.keys = [];
      let at = 0;
      let next = 0;
      this.madeBy.forEach((rank, row) => {
        if (rank < 0) this.given.set(row, bytes.subarray(at, (at += lengths[next++])));
      });
    }

    // The bytes of a token as characters U+0000 to U+00FF.
    keyOfRow(row) {
      const rank = this.madeBy[row];
      if (rank < 0) return keyOf(this.given.get(row));
      return (this.keys[row] ??= this.keyOfRow(this.left[rank]) + this.keyOfRow(this.right[rank]));
    }

    bytesOfRow(row) {
      return Uint8Array.from(this.keyOfRow(row), (character) => character.charCodeAt(0));
    }

    bytesOf(id) {
      const row = this.rowOfId.get(id);
      if (row !== undefined) return this.bytesOfRow(row);
      return new TextEncoder().encode(this.specials.get(id) ?? "");
    }

    findWholeTokens() {
      return new Map(this.ids.map((_, row) => [this.keyOfRow(row), row]));
    }

    findCharacters({ rows, fuse }) {
      const all = addUp(decodeNumbers(rows)).map((row) => [decoder.decode(this.bytesOfRow(row)), row]);
      return { rowOf: new Map(all), fuse };
    }

    // The pairs of bytes that a merge joins; null if unknown ids can be joined too.
    findJoins(characters) {
      const hasUnknown =
        characters === null ? this.byteRows.some((row) => row < 0) : this.byteRows.length === 0;
      if (hasUnknown && (characters?.fuse || this.unknownRow < this.ids.length)) return null;
      const joins = new Uint8Array(1 << 16);
      this.left.forEach((left, rank) => {
        const before = this.leafOf(left, this.right).at(-1);
        joins[(before << 8) | this.leafOf(this.right[rank], this.left)[0]] = 1;
      });
      return joins;
    }

    // The bytes at one end of a token, which no merge makes.
    leafOf(row, sides) {
      while (this.madeBy[row] >= 0) row = sides[this.madeBy[row]];
      return this.given.get(row);
    }

    // Calls visit({ ids, sizes }, piece) for the pieces of a pre-token: its ids, the number of bytes
    // of each, and the bytes.
    encode(bytes, visit) {
      const whole = this.wholeTokens?.get(keyOf(bytes));
      if (whole !== undefined) {
        visit({ ids: [this.ids[whole]], sizes: [bytes.length] }, bytes);
        return;
      }
      let begin = 0;
      for (let end = 1; end <= bytes.length; end++) {
        if (end < bytes.length && !this.maySplit(bytes[end - 1], bytes[end])) continue;
        const piece = bytes.subarray(begin, end);
        visit(this.encodePiece(piece), piece);
        begin = end;
      }
    }

    // No merge reaches across a pair of bytes that none joins. A text of one pre-token is cut here,
    // so that a key stroke costs little in a long one.
    maySplit(before, after) {
      if (this.joins === null || this.joins[(before << 8) | after] === 1) return false;
      return this.characters === null || (after & 0xc0) !== 0x80;
    }

    encodePiece(bytes) {
      if (bytes.length > LONGEST_CACHED) return this.mergePiece(bytes);
      const key = keyOf(bytes);
      let tokens = this.cache.get(key);
      if (tokens === undefined) {
        tokens = this.mergePiece(bytes);
        if (this.cache.size >= MOST_CACHED) this.cache.clear();
        this.cache.set(key, tokens);
      }
      return tokens;
    }

    mergePiece(bytes) {
      const symbols = this.characters === null ? this.bytesAsRows(bytes) : this.charactersAsRows(bytes);
      const { rows, sizes } = this.merge(symbols);
      return { ids: rows.map((row) => (row < this.ids.length ? this.ids[row] : this.unknown)), sizes };
    }

    bytesAsRows(bytes) {
      const rows = Array.from(bytes, (byte) => this.rowOfByte(byte));
      return { rows, sizes: rows.map(() => 1) };
    }

    // A character that is not a token becomes its bytes, or the unknown id.
    charactersAsRows(bytes) {
      const { rowOf, fuse } = this.characters;
      const rows = [];
      const sizes = [];
      const encoder = new TextEncoder();
      for (const character of decoder.decode(bytes)) {
        const row = rowOf.get(character);
        const own = encoder.encode(character);
        if (row !== undefined) {
          rows.push(row);
          sizes.push(own.length);
        } else if (this.byteRows.length > 0) {
          for (const byte of own) {
            rows.push(this.byteRows[byte]);
            sizes.push(1);
          }
        } else if (fuse && rows.length > 0 && rows[rows.length - 1] === this.unknownRow) {
          sizes[sizes.length - 1] += own.length;
        } else {
          rows.push(this.unknownRow);
          sizes.push(own.length);
        }
      }
      return { rows, sizes };
    }

    rowOfByte(byte) {
      const row = this.byteRows[byte];
      if (row >= 0) return row;
      if (this.unknown === null) {
        throw new Error(`The byte 0x${hex([byte])} has no id, and there is no unknown id.`);
      }
      return this.unknownRow;
    }

    // The merge of lowest rank first, of equal ranks the leftmost.
    merge({ rows, sizes }) {
      const { length } = rows;
      const after = rows.map((_, i) => i + 1);
      const before = rows.map((_, i) => i - 1);
      const heap = new Heap();
      const consider = (at) => {
        if (at < 0 || after[at] >= length) return;
        const pair = rows[at] * this.rows + rows[after[at]];
        const rank = this.ranks.get(pair);
        if (rank !== undefined) heap.push({ rank, at, pair });
      };
      for (let at = 0; at + 1 < length; at++) consider(at);
      while (heap.items.length > 0) {
        const { rank, at, pair } = heap.pop();
        const other = after[at];
        // One of the two may have been merged since.
        if (rows[at] < 0 || other >= length || rows[at] * this.rows + rows[other] !== pair) continue;
        rows[at] = this.result[rank];
        rows[other] = -1;
        sizes[at] += sizes[other];
        after[at] = after[other];
        if (after[at] < length) before[after[at]] = at;
        consider(before[at]);
        consider(at);
      }
      return { rows: rows.filter((row) => row >= 0), sizes: sizes.filter((_, i) => rows[i] >= 0) };
    }

    tree(id) {
      const row = this.rowOfId.get(id);
      if (row === undefined && !this.specials.has(id)) return null;
      const node = { id, ...show(this.bytesOf(id)) };
      const rank = row === undefined ? -1 : this.madeBy[row];
      if (rank < 0) return node;
      const parts = [this.left[rank], this.right[rank]].map((part) => this.tree(this.ids[part]));
      return { ...node, rank, left: parts[0], right: parts[1] };
    }
  }

  function keyOf(bytes) {
    let key = "";
    for (let at = 0; at < bytes.length; at += 4096) {
      key += String.fromCharCode(...bytes.subarray(at, at + 4096));
    }
    return key;
  }

  const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

  function hex(bytes) {
    return Array.from(bytes, (byte) => HEX[byte]).join(" ");
  }

  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  // The bytes of a token in hex, and its text, or null for parts of characters.
  function show(bytes) {
    let text = null;
    try {
      text = decoder.decode(bytes);
    } catch {
      // Not UTF-8.
    }
    return { text, bytes: hex(bytes) };
  }

  // ---- Normalizing

  // Unicode 16 decomposes U+105C9. A browser with an older version cannot normalize as Python does.
  const knowsUnicode16 = "\u{105c9}".normalize("NFD") !== "\u{105c9}";

  function makeNormalizer({ normalizer, characters }) {
    if (characters?.table || characters?.removeSpaces) return makeCharacterMap(characters);
    return normalizer === null ? (text) => text : makeUnicodeNormalizer(normalizer);
  }

  // SentencePiece's table: a trie in a double array of Darts, and the texts that replace, each with
  // a zero behind it. `removeSpaces` leaves out spaces at both ends and all but one of several.
  function makeCharacterMap({ table, removeSpaces }) {
    const data = decodeBase64(table);
    const size = data.length > 0 ? new DataView(data.buffer).getUint32(0, true) : 0;
    const trie = new Uint32Array(data.buffer.slice(4, 4 + size));
    const texts = data.subarray(4 + size);
    const offsetOf = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);

    // The longest key at this place, and where the text that replaces it begins.
    const findKey = (text, begin) => {
      let found = null;
      let at = trie.length > 0 ? offsetOf(trie[0]) : 0;
      for (let end = begin; end < text.length; ) {
        const byte = text[end++];
        at ^= byte;
        if (at >= trie.length || (trie[at] & 0x800000ff) !== byte) break;
        const hasLeaf = (trie[at] >>> 8) & 1;
        at ^= offsetOf(trie[at]);
        if (hasLeaf) found = { end, place: trie[at] & 0x7fffffff };
      }
      return found;
    };

    const replace = (text, begin) => {
      const key = findKey(text, begin);
      if (key !== null) {
        return { written: texts.subarray(key.place, texts.indexOf(0, key.place)), end: key.end };
      }
      let end = begin + 1;
      while (end < text.length && (text[end] & 0xc0) === 0x80) end += 1;
      return { written: text.subarray(begin, end), end };
    };

    return (string) => {
      const text = new TextEncoder().encode(string);
      let normal = "";
      let isAfterSpace = removeSpaces;
      for (let at = 0; at < text.length; ) {
        const { written, end } = replace(text, at);
        at = end;
        let added = decoder.decode(written);
        if (isAfterSpace) added = added.replace(/^ +/, "");
        normal += added;
        if (added !== "") isAfterSpace = removeSpaces && added.endsWith(" ");
      }
      return removeSpaces ? normal.replace(/[ \u2581]+$/, "") : normal;
    };
  }

  // Code points that Unicode 16 does not assign stay as they are, in a newer browser too.
  function makeUnicodeNormalizer(data) {
    const bounds = addUp(decodeNumbers(data.assigned));
    const isAssigned = classTable(
      [0, ...bounds],
      bounds.map((_, i) => i % 2).concat(bounds.length % 2),
      false,
    );
    const quotes = new Map(Object.entries(data.quotes));
    const normalize = (text) => {
      if (data.form === null) return text;
      let normal = "";
      let begin = 0;
      let at = 0;
      for (const character of text) {
        const next = at + character.length;
        if (isAssigned[character.codePointAt(0)] === 0) {
          normal += text.slice(begin, at).normalize(data.form) + character;
          begin = next;
        }
        at = next;
      }
      return normal + text.slice(begin).normalize(data.form);
    };
    if (quotes.size === 0) return normalize;
    return (text) => Array.from(normalize(text), (c) => quotes.get(c) ?? c).join("");
  }

  // ---- Added tokens

  const LSTRIP = 1;
  const RSTRIP = 2;
  const SINGLE_WORD = 4;

  // A test of characters, by ranges of code points.
  function rangeTest(differences) {
    const bounds = addUp(decodeNumbers(differences));
    return (character) => {
      const code = character.codePointAt(0);
      let low = 0;
      for (let high = bounds.length; low < high; ) {
        const middle = (low + high) >> 1;
        if (bounds[middle] <= code) low = middle + 1;
        else high = middle;
      }
      return low % 2 === 1;
    };
  }

  // Finds special tokens: of overlapping ones the leftmost and longest.
  class TokenFinder {
    constructor(tokens, isWhiteSpace, isWordCharacter) {
      this.isWhiteSpace = isWhiteSpace;
      this.isWordCharacter = isWordCharacter;
      this.tokens = new Map();
      for (const [text, id, flags] of tokens) {
        const others = this.tokens.get(text[0]) ?? [];
        this.tokens.set(text[0], [...others, { text, id, flags }]);
      }
      for (const some of this.tokens.values()) some.sort((a, b) => b.text.length - a.text.length);
    }

    // Yields the text before each token with the token, and the text after the last one.
    *cut(text) {
      let done = 0;
      for (let at = 0; at < text.length && this.tokens.size > 0; ) {
        const token = this.tokens.get(text[at])?.find((some) => text.startsWith(some.text, at));
        if (token === undefined) {
          at += 1;
          continue;
        }
        const begin = at;
        at += token.text.length;
        if (!this.mayBe(token, text, begin, at)) continue;
        const from = this.skipSpaceBefore(token, text, done, begin);
        at = this.skipSpaceAfter(token, text, at);
        yield { before: text.slice(done, from), text: text.slice(from, at), id: token.id };
        done = at;
      }
      yield { before: text.slice(done) };
    }

    mayBe({ flags }, text, begin, end) {
      if ((flags & SINGLE_WORD) === 0) return true;
      const isBefore = begin > 0 && this.isWordCharacter(lastCharacter(text, begin));
      return !isBefore && !(end < text.length && this.isWordCharacter(text.slice(end, end + 2)));
    }

    skipSpaceBefore({ flags }, text, from, begin) {
      if ((flags & LSTRIP) === 0) return begin;
      while (begin > from && this.isWhiteSpace(text[begin - 1])) begin -= 1;
      return begin;
    }

    skipSpaceAfter({ flags }, text, end) {
      if ((flags & RSTRIP) === 0) return end;
      while (end < text.length && this.isWhiteSpace(text[end])) end += 1;
      return end;
    }
  }

  // The character that ends at a place of a well-formed text.
  function lastCharacter(text, end) {
    const isPair = end > 1 && text.codePointAt(end - 2) > 0xffff;
    return text.slice(end - (isPair ? 2 : 1), end);
  }

  // ---- Encoding

  class PageTokenizer {
    constructor(data) {
      this.vocabulary = new Vocabulary(data);
      this.steps = data.steps.map(readStep);
      this.isWhiteSpace = rangeTest(data.whiteSpace);
      const isWordCharacter = rangeTest(data.wordCharacters);
      const makeFinder = (tokens) => new TokenFinder(tokens, this.isWhiteSpace, isWordCharacter);
      this.specials = makeFinder(data.specials);
      this.normalizedSpecials = makeFinder(data.normalizedSpecials);
      this.normalize = makeNormalizer(data);
      this.prefixSpace = data.prefixSpace;
      this.characters = data.characters;
      this.dropsWhiteSpace = data.dropWhiteSpace;
    }

    // The parts of a text: special tokens, and the text between them, normalized.
    *parts(text) {
      if (text === "") return;
      let isFirst = true;
      for (const special of this.specials.cut(text)) {
        for (const inner of this.normalizedSpecials.cut(this.normalize(special.before))) {
          yield { text: this.prepare(inner.before, isFirst) };
          if (inner.id !== undefined) yield inner;
          isFirst = false;
        }
        if (special.id !== undefined) yield special;
      }
    }

    prepare(text, isFirst) {
      if (this.characters !== null) {
        const space = this.takesSpace(text, isFirst) ? " " : "";
        return space + text.replaceAll("\u2581", " ");
      }
      return this.prefixSpace && text !== "" && !text.startsWith(" ") ? ` ${text}` : text;
    }

    takesSpace(text, isFirst) {
      const { prefix, prefixBeforeSpace, removeSpaces } = this.characters;
      if (prefix === "never" || !(isFirst || prefix === "always")) return false;
      if (text === "") return prefix === "document" && !removeSpaces;
      return prefixBeforeSpace || !/^[ \u2581]/.test(text);
    }

    // The ends of the pre-tokens, in bytes.
    split(bytes) {
      if (this.characters !== null) return this.splitSpaces(bytes);
      let ends = bytes.length > 0 ? [bytes.length] : [];
      for (const step of this.steps) {
        const next = [];
        let begin = 0;
        for (const end of ends) {
          splitChunk(step, bytes, begin, end, next);
          begin = end;
        }
        ends = next;
      }
      return ends;
    }

    splitSpaces(bytes) {
      const ends = [];
      for (let at = 1; at < bytes.length && this.characters.splitSpaces; at++) {
        if (bytes[at] === 0x20) ends.push(at);
      }
      if (bytes.length > 0) ends.push(bytes.length);
      return ends;
    }

    isDropped(pretoken) {
      if (!this.dropsWhiteSpace) return false;
      const { text } = show(pretoken);
      return text !== null && Array.from(text).every(this.isWhiteSpace);
    }

    // Calls visit({ ids, sizes }, bytes) for the pieces of each pre-token and each special token:
    // ids, and the number of bytes of each. White space that is left out has none.
    walk(text, visit) {
      const encoder = new TextEncoder();
      for (const part of this.parts(text.toWellFormed())) {
        const bytes = encoder.encode(part.text);
        if (part.id !== undefined) {
          visit({ ids: [part.id], sizes: [bytes.length] }, bytes);
          continue;
        }
        let begin = 0;
        for (const end of this.split(bytes)) {
          const pretoken = bytes.subarray(begin, end);
          if (this.isDropped(pretoken)) visit({ ids: [], sizes: [] }, pretoken);
          else this.vocabulary.encode(pretoken, visit);
          begin = end;
        }
      }
    }

    encode(text) {
      const found = [];
      this.walk(text, ({ ids }) => {
        for (const id of ids) found.push(id);
      });
      return found;
    }

    // The tokens of a text. `start` and `end` are places in the text after normalization, in UTF-16
    // units, of the characters that a token has at least a part of; `byteStart` and `byteEnd` are
    // those of its bytes in UTF-8.
    tokens(text) {
      const found = [];
      let place = 0; // in bytes
      let units = 0; // of the characters that have begun
      let width = 0; // of the last one
      const advance = (bytes) => {
        place += bytes.length;
        for (const byte of bytes) {
          if ((byte & 0xc0) === 0x80) continue;
          width = byte >= 0xf0 ? 2 : 1;
          units += width;
        }
      };
      this.walk(text, ({ ids, sizes }, bytes) => {
        let at = 0;
        ids.forEach((id, i) => {
          const part = bytes.subarray(at, at + sizes[i]);
          const start = units - (part.length > 0 && (part[0] & 0xc0) === 0x80 ? width : 0);
          const byteStart = place;
          advance(part);
          found.push({ id, ...show(part), start, end: units, byteStart, byteEnd: place });
          at += sizes[i];
        });
        advance(bytes.subarray(at));
      });
      return found;
    }
  }

  // ---- Loading

  function load(data) {
    let reason = data.reason;
    if (reason === undefined && data.normalizer?.form && !knowsUnicode16) {
      reason = "this browser has an older version of Unicode, which normalizes other characters";
    }
    if (reason !== undefined) {
      const refuse = () => {
        throw new Error(`This page cannot encode with the tokenizer: ${reason}.`);
      };
      return { reason, encode: refuse, tokens: refuse, tree: refuse };
    }
    const tokenizer = new PageTokenizer(data);
    return {
      reason: null,
      encode: (text) => tokenizer.encode(text),
      tokens: (text) => tokenizer.tokens(text),
      tree: (id) => tokenizer.vocabulary.tree(id),
    };
  }

  if (typeof module !== "undefined") {
    module.exports = { load };
  } else {
    window.beamBpe = load(JSON.parse(document.getElementById("encoder-data").textContent));
    window.beamBpe.ready = Promise.resolve(window.beamBpe);
  }
})();
