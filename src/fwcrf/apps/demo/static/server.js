// Requests to the server: one session per page, and at most one pending solve request.

let session = null;
let waiting = null;

const failed = async (answer) => new Error((await answer.json().catch(() => ({}))).error ?? `the server answered with status ${answer.status}`);

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { "X-Session": session ?? "", "X-Fwcrf": "1", ...options.headers } });
  if (!answer.ok) throw await failed(answer);
  return answer;
}

export async function begin() {
  const begun = await (await ask("/api/session", { method: "POST" })).json();
  session = begun.session;
  return begun;
}

// Ends a pending solve request.
export function cancel() {
  waiting?.abort();
  waiting = null;
}

// Posts new data; then cancels a pending solve request, which uses the old data.
async function change(path, body) {
  const found = await (await ask(path, { method: "POST", body })).json();
  cancel();
  return found;
}

export const choose = (name) => change(`/api/picture?bundled=${encodeURIComponent(name)}`);

export const sendPicture = (file) => change(`/api/picture?name=${encodeURIComponent(file.name)}`, file);

export const sendScores = (file, kind, align) =>
  change(`/api/scores?name=${encodeURIComponent(file.name)}&kind=${kind}&align=${encodeURIComponent(align)}`, file);

export const picture = async () => createImageBitmap(await (await ask("/api/picture")).blob());

export const download = async (path) => (await ask(path)).blob();

// Calls `take` with each event of the response. Returns false if a newer request replaced this one, else true.
export async function solve(question, take) {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  try {
    const answer = await ask("/api/solve", {
      method: "POST", body: JSON.stringify(question), signal: mine.signal, headers: { "Content-Type": "application/json" },
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (mine !== waiting) return false;
      for (const event of lines.map((line) => JSON.parse(line))) {
        if (event.event === "stale") return false;
        take(event);
      }
    }
  } catch (error) {
    if (mine !== waiting || error.name === "AbortError") return false;
    throw error;
  }
}

export const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
