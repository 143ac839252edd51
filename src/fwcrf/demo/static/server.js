// Talking to the server: one session for this page, the latest question alone is waited for.

let session = null;

const failed = async (answer) => new Error((await answer.json().catch(() => ({}))).error ?? `the server said ${answer.status}`);

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { "X-Session": session ?? "", "X-Fwcrf": "1", ...options.headers } });
  if (!answer.ok) throw await failed(answer);
  return answer;
}

export async function begin() {
  const begun = await (await ask("/api/session", { method: "POST" })).json();
  session = begun.session;
  return begun.pictures;
}

export const choose = async (name) => (await ask(`/api/picture?bundled=${encodeURIComponent(name)}`, { method: "POST" })).json();

export const sendPicture = async (file) =>
  (await ask(`/api/picture?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file })).json();

export const sendScores = async (file, kind) =>
  (await ask(`/api/scores?name=${encodeURIComponent(file.name)}&kind=${kind}`, { method: "POST", body: file })).json();

export const picture = async () => createImageBitmap(await (await ask("/api/picture")).blob());

export const download = async (path) => (await ask(path)).blob();

let waiting = null;

// Calls `take` with each event of the answer; an answer that is overtaken by the next question ends silently.
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
      for (const line of lines) take(JSON.parse(line));
    }
  } catch (error) {
    if (mine !== waiting || error.name === "AbortError") return false;
    throw error;
  }
}

export const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
