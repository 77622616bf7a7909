// Diagrams stay readable on narrow screens: they are scrolled, not shrunk further.
const render = mermaid.render;
mermaid.render = async (...args) => {
  const drawn = await render(...args);
  const svg = drawn.svg.replace(/max-width: ([\d.]+)px/, "min-width: min($1px, max(620px, 0.5 * $1px)); $&");
  return { ...drawn, svg };
};
