// Wide tables scroll by themselves. With this, the keyboard can scroll them too.
new MutationObserver(() => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) each.tabIndex = 0;
}).observe(document.documentElement, { childList: true, subtree: true });
