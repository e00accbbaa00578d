// Fetches the page again every few seconds while somebody looks at it, and changes only what has changed, so that the focus, the
// place on the page, selected and typed text stay. All texts are the server's.
'use strict';
const least = 2000, share = 4; // milliseconds; a fetch may take a quarter of the time
const stale = document.getElementById('stale');
let etag = '', shown = new Date(), timer, busy = false;

// change makes one element like another. Children with an id, which are unique, keep their elements; others are compared in order.
function change(old, now) {
  for (const {name} of [...old.attributes]) if (!now.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  for (const {name, value} of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    let same = next.id ? at : null; // those before are done
    while (same && same.id !== next.id) same = same.nextSibling;
    if (same && same !== at) {
      old.insertBefore(same, at);
      at = same;
    }
    if (!at || at.nodeName !== next.nodeName || (at.id || '') !== (next.id || '')) {
      old.insertBefore(next, at);
      continue;
    }
    if (at.nodeType === Node.ELEMENT_NODE) change(at, next);
    else if (at.data !== next.data) at.data = next.data;
    at = at.nextSibling;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

async function update() {
  if (busy) return;
  busy = true;
  const began = Date.now();
  try {
    const response = await fetch(location.href.split('#')[0], {headers: etag ? {'If-None-Match': etag} : {}, signal: AbortSignal.timeout(20000)});
    if (response.status !== 304) {
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      const main = page.getElementById('main');
      if (!main) throw new Error(response.statusText);
      change(document.getElementById('main'), main);
      document.title = page.title;
      etag = response.headers.get('ETag') || '';
    }
    shown = new Date();
    stale.hidden = true;
  } catch {
    stale.querySelector('time').textContent = shown.toLocaleTimeString();
    stale.hidden = false;
  }
  busy = false;
  plan(Math.max(least, share * (Date.now() - began)));
}

function plan(wait) {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(update, wait);
}

document.addEventListener('visibilitychange', () => plan(0));
document.addEventListener('click', async event => {
  const button = event.target.closest('.copy');
  if (!button) return;
  const command = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = 'Copied';
  } catch { // the browser does not allow it
    getSelection().selectAllChildren(command);
  }
});
document.documentElement.classList.add('live');
plan(least);
