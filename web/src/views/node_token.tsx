// The button by which a viewer presents a token of the node that is shown: it opens there what its user may see and do.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { nodeTokens, setNodeToken } from '../base/node_tokens'
import { Dialog } from '../kit/dialog'

export function NodeToken({ node }: { node: string }): JSX.Element {
  const [asking, setAsking] = useState(false)
  const [text, setText] = useState('')
  const has = Boolean(nodeTokens.value[node])
  const use = (event: Event): void => {
    event.preventDefault()
    setNodeToken(node, text.trim())
    setText('')
    setAsking(false)
  }
  if (has)
    return (
      <button type="button" class="button" onClick={() => setNodeToken(node, '')}>
        Forget the token
      </button>
    )
  return (
    <>
      <button type="button" class="button" onClick={() => setAsking(true)}>
        Use a token
      </button>
      <Dialog title={`Token of ${node}`} open={asking} onClose={() => setAsking(false)}>
        <form class="ask" onSubmit={use}>
          <p>
            Other nodes show totals only. A token of {node} opens what its user may see there; one with the role control also lets you act. On {node}, run:
          </p>
          <pre>memoir token add NAME --user USER --role control</pre>
          <label for="node-token">Token</label>
          <input
            id="node-token"
            type="password"
            class="field"
            autocomplete="off"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <p class="muted">It stays in this tab, and goes to the node that serves this page, which proves with it who asks.</p>
          <div class="row ask-end">
            <button type="button" class="button" onClick={() => setAsking(false)}>
              Cancel
            </button>
            <button type="submit" class="button main-action" disabled={!text.trim()}>
              Use it
            </button>
          </div>
        </form>
      </Dialog>
    </>
  )
}
