// Who is not known yet, or not any more, learns here how to get in.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { locked, post, Problem } from '../api/client'
import { live, reconnectNow } from '../api/stream'

export function Login(): JSX.Element {
  const [code, setCode] = useState('')
  const [problem, setProblem] = useState<Problem | null>(null)
  const before = live.value.since > 0
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault()
    try {
      await post('/login', { code: code.trim() })
      locked.value = false
      reconnectNow()
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, 'Login failed', String(error)))
    }
  }
  return (
    <main class="login" id="main">
      <section class="card">
        <h1>{before ? 'The session has ended' : 'Memoir'}</h1>
        <p>
          {/link=used/.test(location.search) && <span class="bad">This link was used already, or is older than ten minutes. </span>}
          {before
            ? 'You logged out, or the session was too old. To come back, run this on the machine:'
            : 'This page shows what the memory of this machine is used for, and by whom. To log in, run this on the machine:'}
        </p>
        <pre>memoir open</pre>
        <p class="muted">
          It opens the browser with a link that works once, within ten minutes. With <code>--print</code> it prints the link, for a browser elsewhere. You
          see what your user may see; as root (<code>sudo memoir open</code>) everything.
        </p>
        <form onSubmit={(event) => void enter(event)}>
          <label for="code">Or paste the code of such a link</label>
          <div class="row">
            <input
              id="code"
              class={`field grow${problem ? ' wrong' : ''}`}
              autocomplete="one-time-code"
              spellcheck={false}
              value={code}
              onInput={(event) => setCode(codeOf(event.currentTarget.value))}
            />
            <button type="submit" class="button main-action" disabled={!code.trim()}>
              Log in
            </button>
          </div>
          {problem && (
            <p class="bad" role="alert">
              {problem.detail || problem.title}
            </p>
          )}
        </form>
      </section>
    </main>
  )
}

/** Of a whole link, its code. */
export function codeOf(text: string): string {
  return /[?&]code=([^&\s]+)/.exec(text)?.[1] ?? text
}
