// The encoder box: the text that the reader types in coloured tokens, and the merges of one of them,
// at first of the longest.
"use strict";

(() => {
  const TOKENS_DRAWN = 400; // at a time
  const MARGIN = 200; // pixels below the visible tokens that are drawn too
  const MOST_IDS = 2000; // shown; all are copied
  const MOST_LEVELS = 24; // of a merge tree
  const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/u;

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

  function escape(character) {
    const code = character.codePointAt(0).toString(16);
    if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
    return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  }

  // The text of a token as elements: with escapes for what cannot be seen, and for parts of
  // characters.
  function showToken({ text, bytes }) {
    if (text === null) {
      const escapes = bytes.split(" ").map((byte) => {
        const character = String.fromCharCode(parseInt(byte, 16));
        return character >= " " && character <= "~" ? character : `\\x${byte}`;
      });
      return [make("i", {}, escapes.join(""))];
    }
    return Array.from(text, (character) => {
      if (character === "\n") return [make("i", { class: "bpe-break" }), "\n"];
      if (character === "\t") return [make("i", { class: "bpe-tab" }), "\t"];
      return HIDDEN.test(character) ? [make("i", {}, escape(character))] : [character];
    }).flat();
  }

  const listIds = (tokens) => tokens.map(({ id }) => id).join(" ");

  function showTree(node, level = 1) {
    const chip = make("code", { class: "chip" }, ...showToken(node));
    const facts = node.rank === undefined ? `id ${node.id}` : `id ${node.id}, merge ${node.rank}`;
    const item = make("li", {}, chip, " ", make("span", { class: "soft" }, facts));
    if (node.left && level < MOST_LEVELS) {
      item.append(make("ul", {}, showTree(node.left, level + 1), showTree(node.right, level + 1)));
    }
    return item;
  }

  function mountEncoderBox(element) {
    const { beamBpe } = window;
    if (beamBpe.reason !== null) {
      const text = `This page cannot encode with the tokenizer: ${beamBpe.reason}.`;
      element.append(make("p", { class: "note" }, text));
      return;
    }
    const input = make("textarea", { id: "encoder-text", rows: "5", spellcheck: "false", dir: "auto" });
    const facts = make("output", { for: "encoder-text", class: "encoder-facts" });
    const tokens = make("div", {
      class: "bpe-tokens",
      dir: "auto",
      translate: "no",
      role: "group",
      "aria-label": "Tokens; arrow keys go from one to the next",
    });
    const view = make("div", { class: "encoder-tokens" }, tokens);
    const rest = make("p", { class: "soft" });
    const tree = make("ul", { class: "merge-tree" });
    const ids = make("textarea", { id: "encoder-ids", rows: "2", readonly: "" });
    const copy = make("button", { type: "button" }, "Copy the ids");
    element.append(
      make("label", { for: "encoder-text" }, "Text"),
      input,
      facts,
      view,
      rest,
      make("div", { class: "encoder-tree", tabindex: "0", role: "region", "aria-label": "Merges of a token" }, make("h3", {}, "Merges of a token"), tree),
      make("label", { for: "encoder-ids" }, "Ids"),
      ids,
      copy,
    );

    const show = (span) => {
      if (!span) return;
      tokens.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
      span.setAttribute("tabindex", "0");
      tree.replaceChildren(showTree(beamBpe.tree(Number(span.dataset.id))));
    };

    let found = [];

    // Draws tokens until they reach below what is visible: thousands would slow down typing.
    const draw = () => {
      let begin = tokens.childElementCount;
      while (begin < found.length && view.scrollTop + view.clientHeight + MARGIN > tokens.offsetHeight) {
        const next = found.slice(begin, begin + TOKENS_DRAWN).map((token) => {
          const title = `id ${token.id}, bytes ${token.bytes}`;
          const span = make("span", { title, role: "button", tabindex: "-1" }, ...showToken(token));
          span.dataset.id = token.id;
          return span;
        });
        tokens.append(...next);
        begin += next.length;
      }
      const hidden = found.length - begin;
      rest.textContent = hidden > 0 ? `Scroll to see ${count(hidden, "more token")}.` : "";
    };

    const update = () => {
      try {
        found = beamBpe.tokens(input.value);
      } catch (error) {
        found = [];
        for (const shown of [tokens, rest, tree]) shown.replaceChildren();
        ids.value = "";
        facts.textContent = error.message;
        return;
      }
      const size = new TextEncoder().encode(input.value).length;
      const rate = found.length > 0 ? `, ${(size / found.length).toFixed(2)} bytes per token` : "";
      facts.textContent = `${count(found.length, "token")}, ${count(size, "byte")}${rate}`;
      tokens.replaceChildren();
      draw();
      ids.value = listIds(found.slice(0, MOST_IDS)) + (found.length > MOST_IDS ? " …" : "");
      tree.replaceChildren();
      const spans = [...tokens.children];
      const sizeOf = (i) => found[i].bytes.length;
      show(spans[spans.reduce((longest, _, i) => (sizeOf(i) > sizeOf(longest) ? i : longest), 0)]);
    };

    const spanOf = (event) => event.target.closest(".bpe-tokens > span");
    tokens.addEventListener("pointerover", (event) => show(spanOf(event)));
    tokens.addEventListener("focusin", (event) => show(spanOf(event)));
    tokens.addEventListener("keydown", (event) => {
      draw();
      const all = [...tokens.children];
      const at = all.indexOf(spanOf(event));
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (at < 0 || next === undefined) return;
      event.preventDefault();
      all[next]?.focus();
    });
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(listIds(found));
        copy.textContent = "Copied";
      } catch {
        ids.value = listIds(found);
        ids.select(); // Without permission, the reader copies them.
      }
    });
    view.addEventListener("scroll", draw);
    let isWaiting = false;
    input.addEventListener("input", () => {
      copy.textContent = "Copy the ids";
      if (isWaiting) return;
      isWaiting = true;
      requestAnimationFrame(() => {
        isWaiting = false;
        update();
      });
    });
    input.value = element.dataset.text ?? "";
    update();
  }

  window.mountEncoderBox = mountEncoderBox;
  const place = document.getElementById("encoder-box");
  if (place) mountEncoderBox(place);
})();
