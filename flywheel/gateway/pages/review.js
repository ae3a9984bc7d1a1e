// The page: draws where the sitting is, and turns keys and clicks into what the reviewer says.
// Whatever comes from the log is set as text, never as markup.

const CHOICE_KEYS = [..."1234567890abcdfghijklmoprtvwxzABCDFG"];
const KEYS = [["y", "Right"], ["n", "Wrong"], ["e", "Edit"], ["s", "Skip"], ["u", "Undo"], ["q", "Quit"]];
const ASKING = [["e", "Type it"], ["n", "Cannot say"], ["Escape", "Back"]];
const FINISHED = KEYS.slice(-2);
const WHY = { audit: "In the audit sample", disagreement: "Feedback on this answer disagrees" };
const LONG = 600; // characters of earlier messages beyond which they are folded away
const STORED_AS = "flywheel-review";

let sitting = null;
let asking = false; // `n` was pressed, and the next key names the right answer
let busy = false;
let drawn = null; // the item on the screen

const at = (id) => document.getElementById(id);
const show = (id, visible) => { at(id).hidden = !visible; };

// One thing at a time: a key pressed while another is being stored would count for an item that nobody has seen.
async function alone(work) {
  if (busy) return;
  busy = true;
  const here = sitting;
  let problem = null;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) {
      busy = false;
      throw error;
    }
    problem = error;
  }
  if (sitting !== here) return; // the reviewer has left meanwhile
  busy = false;
  if (problem === null) {
    asking = false;
    closeWriting();
  }
  if (problem?.refused || drawn === null && problem && !sitting.past.length) leave(problem);
  else draw(problem);
}

function act(key) {
  if (sitting === null) return;
  if (key === "q" && !asking) leave();
  if (busy || sitting === null) return;
  const chosen = sitting.item && sitting.choices[CHOICE_KEYS.indexOf(key)];
  if (chosen !== undefined) alone(() => sitting.answer(chosen));
  else if (!sitting.item || !asking) actOnItem(key);
  else if (key === "e") write(sitting.item.answer);
  else if (key === "n") alone(() => sitting.wrong());
  else if (key === "Escape") { asking = false; draw(); }
}

function actOnItem(key) {
  if (key === "u") alone(() => sitting.undo());
  else if (!sitting.item) return;
  else if (key === "y") alone(() => sitting.right());
  else if (key === "s") alone(() => sitting.skip());
  else if (key === "e") write(sitting.item.answer);
  else if (key === "n" && !sitting.choices.length) write("");
  else if (key === "n") { asking = true; draw(); }
  else if (key === "+") at("earlier").open = !at("earlier").open;
}

function write(text) {
  for (const id of ["choose", "keys"]) show(id, false);
  show("writing", true);
  at("right").value = text;
  at("right").focus();
}

function closeWriting() {
  show("choose", sitting?.choices.length > 0);
  show("keys", true);
  show("writing", false);
}

function save() {
  const text = at("right").value.trim();
  if (text) alone(() => sitting.answer(text));
}

// Control characters, marks that turn the direction, and characters without width are written out.
function plain(text) {
  const hidden =
    /[\p{Cs}\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
  return text.replace(/\r\n/g, "\n").replace(hidden, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// A long name may be broken where its words end.
function words(text) {
  const made = element("span", "");
  made.append(...text.split(/(?<=[_/.:-])/).flatMap((word) => [word, element("wbr", "")]));
  return made;
}

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

function turn({ role, text }) {
  const said = element("p", plain(text) || "(no text)");
  said.dir = "auto";
  const made = element("div", "", element("h2", plain(role)), said);
  made.className = "turn";
  return made;
}

function button(key, text) {
  const made = element("button", "", element("kbd", key === "Escape" ? "Esc" : key), words(text));
  made.type = "button";
  made.dataset.key = key;
  made.addEventListener("click", () => act(key));
  return made;
}

function draw(problem = null) {
  const { item, task, today, total, more, past } = sitting;
  at("error").textContent = problem?.message ?? "";
  show("error", problem !== null);
  show("sign-in", false);
  show("item", item !== undefined);
  show("finished", item === undefined);
  show("desk", true);
  at("task").textContent = task ?? "Review";
  document.title = task ? `Review · ${task}` : "Review";
  const place = item ? `${past.length + 1} of ${total}${more ? "+" : ""}, ` : "";
  at("progress").textContent = `${place}${today} labelled today`;
  drawKeys();
  if (!item) drawFinished(problem);
  else if (drawn !== item) drawItem(item);
  drawn = item ?? null;
}

function drawKeys() {
  const { item, choices, past } = sitting;
  document.body.classList.toggle("choosing", item !== undefined && choices.length > 0);
  show("choose", choices.length > 0 && at("writing").hidden);
  at("choose").classList.toggle("asking", asking);
  at("question").textContent = asking ? "Wrong. What is right?" : "Or what would be right";
  if (asking) at("question").scrollIntoView({ block: "nearest" });
  at("choices").replaceChildren(...(item ? choices : []).map((choice, place) => {
    const made = button(CHOICE_KEYS[place], plain(choice));
    made.classList.toggle("same", choice === item.answer.trim());
    return made;
  }));
  const keys = !item ? FINISHED : asking ? ASKING : KEYS;
  at("keys").replaceChildren(...keys.map(([key, text]) => button(key, text)));
  const back = at("keys").querySelector('[data-key="u"]');
  if (back) back.disabled = !past.length;
}

function drawItem(item) {
  const turns = item.turns.map(turn);
  const last = turns.pop();
  const length = item.turns.slice(0, -1).reduce((sum, { text }) => sum + text.length, 0);
  show("earlier", turns.length > 0);
  at("earlier").open = length <= LONG;
  at("earlier").querySelector("summary").textContent = `Earlier messages: ${turns.length}`;
  at("earlier").querySelector("div").replaceChildren(...turns);
  at("asked").replaceChildren(...(last ? [last] : []));
  at("why").textContent = WHY[item.why] ?? plain(item.why);
  at("answer").classList.toggle("empty", !item.answer.trim());
  at("answer").querySelector("p").textContent = plain(item.answer) || "(no text)";
  at("item").focus({ preventScroll: true });
  scrollTo(0, 0);
  const hidden = at("answer").getBoundingClientRect().bottom > at("desk").getBoundingClientRect().top;
  if (hidden) at("asked").scrollIntoView();
}

function drawFinished(problem) {
  const { skipped } = sitting;
  const left = skipped ? `Nothing waits for review but what you skipped: ${skipped}.` : "Nothing waits for review.";
  at("finished").querySelector("p").textContent = problem ? "" : `${left}\nWhat is new appears with the next intake.`;
  at("again").textContent = skipped ? "Go through it" : "Look again";
}

// Back to the first form, with nothing left on the page. The key is kept only where it may be right.
function leave(problem = null) {
  const keep = problem !== null && !problem.refused;
  if (!keep) {
    sessionStorage.removeItem(STORED_AS);
    at("key").value = "";
  }
  sitting = drawn = null;
  asking = busy = false;
  closeWriting();
  for (const where of ["#earlier div", "#asked", "#answer p", "#choices", "#progress", "#right"]) {
    document.querySelector(where).replaceChildren();
  }
  at("right").value = "";
  at("task").textContent = document.title = "Review";
  for (const id of ["item", "finished", "desk"]) show(id, false);
  at("error").textContent = problem?.message ?? "";
  show("error", problem !== null);
  show("sign-in", true);
  at(at("author").value ? "key" : "author").focus();
}

function signIn() {
  const author = at("author").value.trim();
  const key = at("key").value.trim();
  if (!author || busy) return; // pressed twice
  if (!/^[\x21-\x7e]*$/.test(key)) {
    leave(new Problem("This is no key: it has characters that no key has.", true));
    return;
  }
  sitting = new Sitting(author, key, new URLSearchParams(location.search).get("task"));
  sessionStorage.setItem(STORED_AS, JSON.stringify({ author, key }));
  alone(() => sitting.refill());
}

at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn();
});
at("writing").addEventListener("submit", (event) => {
  event.preventDefault();
  save();
});
at("cannot").addEventListener("click", () => alone(() => sitting.wrong()));
at("back").addEventListener("click", () => {
  closeWriting();
  at("item").focus({ preventScroll: true });
});
at("again").addEventListener("click", () => alone(() => sitting.again()));
document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.repeat || sitting === null) return;
  if (!at("writing").hidden) {
    if (event.key === "Escape") at("back").click();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  act(event.key);
  if (!at("writing").hidden) event.preventDefault(); // else the key would be the first letter there
});

const stored = JSON.parse(sessionStorage.getItem(STORED_AS) ?? "null");
if (stored === null) {
  leave();
} else {
  at("author").value = stored.author;
  at("key").value = stored.key;
  signIn();
}
