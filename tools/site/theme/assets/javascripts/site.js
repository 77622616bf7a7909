// What is scrolled sideways can be reached by keyboard.
document$.subscribe(() =>
  setTimeout(() => {
    for (const element of document.querySelectorAll(".md-typeset__scrollwrap, .mermaid")) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    }
  }, 500),
);
