// Formulas that Markdown has put into elements of class arithmatex, \(...\) in a line and \[...\] on their own.
for (const element of document.querySelectorAll(".arithmatex")) {
  const [, opened, formula] = element.textContent.trim().match(/^\\([([])([^]*)\\[)\]]$/);
  katex.render(formula, element, { displayMode: opened === "[", throwOnError: false });
}
