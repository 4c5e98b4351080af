// Tokens of other nodes, as the viewer typed them: what a token opens on its node is then seen through this one. They live as long as
// the tab, and are sent with questions about their node alone.
import { signal } from '@preact/signals'

const STORE = 'memoir.node-tokens'
export const NODE_TOKEN_HEADER = 'Memoir-Node-Token'

type Tokens = Readonly<Record<string, string>>

function load(): Tokens {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(STORE) ?? '{}')
    return found && typeof found === 'object' ? (found as Tokens) : {}
  } catch {
    return {} // no storage, or not ours
  }
}

export const nodeTokens = signal<Tokens>(load())

/** '' forgets it. */
export function setNodeToken(node: string, token: string): void {
  const all = Object.fromEntries(Object.entries(nodeTokens.value).filter(([name]) => name !== node))
  if (token) all[node] = token
  nodeTokens.value = all
  try {
    sessionStorage.setItem(STORE, JSON.stringify(all))
  } catch {
    // It lasts until the page is loaded again.
  }
}

/** The headers of a question: with the token of the node that it is about. */
export function nodeTokenHeaders(url: string, tokens: Tokens = nodeTokens.value): Record<string, string> {
  const at = url.indexOf('?')
  const node = at < 0 ? null : new URLSearchParams(url.slice(at)).get('node')
  const token = node == null ? undefined : tokens[node]
  return token ? { [NODE_TOKEN_HEADER]: token } : {}
}
