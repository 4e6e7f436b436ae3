// Code snippets that show how to record, with one part in accent.
import type { JSX } from "preact";
import { Copy } from "../ui/copy";

const WORDS = /\b(import|with|as|for|in|from|def|return)\b|(#.*$)/gm;

/** Python with keywords and comments in quiet ink and `mark` in accent. */
export function Snippet({ code, mark }: { code: string; mark: string }): JSX.Element {
  const at = mark ? code.indexOf(mark) : -1;
  const parts: [string, boolean][] = at < 0 ? [[code, false]] : [[code.slice(0, at), false], [mark, true], [code.slice(at + mark.length), false]];
  return (
    <>
      <pre class="snippet"><code>{parts.map(([text, on]) => (on ? <span class="mark-code">{text}</span> : quieted(text)))}</code></pre>
      <div class="buttons"><Copy class="button primary" what="the snippet" text={() => code}>Copy snippet</Copy></div>
    </>
  );
}

function quieted(text: string): (JSX.Element | string)[] {
  const out: (JSX.Element | string)[] = [];
  let at = 0;
  for (const m of text.matchAll(WORDS)) {
    out.push(text.slice(at, m.index), <span class="word-code">{m[0]}</span>);
    at = m.index + m[0].length;
  }
  out.push(text.slice(at));
  return out;
}

export const recordSnippet = (logdir: string): { code: string; mark: string } => {
  const mark = `tp.tensorboard_trace_handler(${JSON.stringify(logdir)})`;
  return {
    mark,
    code: `import torch.profiler as tp

with tp.profile(
    schedule=tp.schedule(wait=5, warmup=2, active=3),
    on_trace_ready=${mark},
    record_shapes=True, with_stack=True,
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()`,
  };
};

/** The whole job instead of a few steps: every iteration timed, the work of the sampled ones counted. */
export const captureSnippet = (logdir: string, mark = `sol.capture(${JSON.stringify(logdir)}, model=model)`): { code: string; mark: string } => ({
  mark,
  code: `import tb_sol_plugin as sol

with ${mark} as tracker:
    for batch in loader:
        train_step(batch)
        tracker.step()`,
});

const CALL = `with torch.profiler.profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    on_trace_ready=tensorboard_trace_handler(logdir),
) as prof: ...`;

/** A call of `sol.capture` with the missing argument; null where it has no such argument. */
function ofCapture(argument: string): { code: string; mark: string } | null {
  const plain = captureSnippet("");
  const whole = (extra: string): { code: string; mark: string } => ({ code: captureSnippet("", `sol.capture(logdir, model=model${extra})`).code, mark: extra.replace(/^, /, "") });
  if (argument === "profile=True") return whole(", profile=True");
  if (argument === "every_n_steps") return whole(", every_n_steps=100");
  if (argument === "model=model") return { ...whole(""), mark: argument };
  return plain.code.includes(argument) ? { code: captureSnippet("", "sol.capture(logdir, model=model)").code, mark: argument } : null;
}

/**
 * A profiler call with the missing argument in its place; one that is no keyword argument is marked where the call has it.
 * capture: the recording is a SOL capture, and the argument may be one of `sol.capture`.
 */
export function argumentSnippet(argument: string, capture = false): { code: string; mark: string } | null {
  const ofSol = capture ? ofCapture(argument) : null;
  if (ofSol) return ofSol;
  if (argument.startsWith("sol.capture(")) return captureSnippet("", argument);
  if (CALL.includes(argument)) return { code: CALL, mark: argument };
  const mark = /^[A-Za-z_]\w*$/.test(argument) ? `${argument}=True` : argument;
  if (!/^[A-Za-z_]\w*\s*=/.test(mark)) return null;
  const keyword = /^\w+/.exec(mark)![0];
  const there = CALL.split("\n").find((line) => line.trim().startsWith(`${keyword}=`)); // a call has an argument once
  if (there) return { code: CALL.replace(there, () => `    ${mark},`), mark };
  return { code: CALL.replace("    on_trace", `    ${mark},\n    on_trace`), mark };
}
