// Asking memoird. Errors are problems (RFC 9457) with a title, a detail for people, and for queries the place of
// the mistake; where nothing could be reached, a problem of our own with status 0.
import { signal } from '@preact/signals'
import { nodeTokenHeaders } from '../base/node_tokens'
import { parsePlain } from '../base/plain'
import { remoteNode } from '../base/route'

export const API = '/api/v1'

export class Problem extends Error {
  readonly status: number
  readonly title: string
  readonly detail: string
  /** Of a query: "where", "show", ... */
  readonly part: string | undefined
  readonly at: number | undefined
  readonly len: number | undefined
  readonly retryAfter: number | undefined

  constructor(status: number, title: string, detail: string, more: Record<string, unknown> = {}) {
    super(detail || title)
    this.status = status
    this.title = title
    this.detail = detail
    this.part = typeof more['part'] === 'string' ? more['part'] : undefined
    this.at = typeof more['at'] === 'number' ? more['at'] : undefined
    this.len = typeof more['len'] === 'number' ? more['len'] : undefined
    this.retryAfter = typeof more['retryAfter'] === 'number' ? more['retryAfter'] : undefined
  }
}

/** Set when memoird said that it does not know us (any more): the page shows how to get in. */
export const locked = signal(false)

export type Arguments = Record<string, string | number | boolean | null | undefined>

export function address(path: string, args: Arguments = {}): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(args))
    if (value != null && value !== '') query.set(name, String(value))
  const text = query.toString()
  return API + path + (text ? '?' + text : '')
}

/** What this node alone answers. */
const LOCAL: ReadonlySet<string> = new Set(['/cluster', '/cluster/programs', '/login', '/logout', '/session', '/tables'])

/** The address of a question that a view asks: of the node that the view is about. */
export function viewAddress(path: string, args: Arguments = {}): string {
  const here = LOCAL.has(path) || args['scope'] != null || args['node'] != null
  return address(path, here || !remoteNode.value ? args : { ...args, node: remoteNode.value })
}

export interface Fetched<T> {
  data: T
  etag: string | null
}

/** GET as JSON; null when the answer is still that of `etag`. */
export async function fetchJson<T>(url: string, etag: string | null, abort?: AbortSignal): Promise<Fetched<T> | null> {
  const headers: Record<string, string> = { Accept: 'application/json' }
  if (etag) headers['If-None-Match'] = etag
  const response = await reach(url, { headers, signal: abort ?? null })
  if (response.status === 304) return null
  if (!response.ok) throw await problemOf(response)
  return { data: parsePlain(await response.text()) as T, etag: response.headers.get('ETag') }
}

export async function get<T>(path: string, args?: Arguments): Promise<T> {
  const answer = await fetchJson<T>(address(path, args), null)
  return (answer as Fetched<T>).data
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const response = await reach(viewAddress(path), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify(body),
  })
  if (!response.ok) throw await problemOf(response)
  const text = await response.text()
  return (text ? parsePlain(text) : null) as T
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  let response: Response
  try {
    response = await fetch(url, { credentials: 'same-origin', ...init, headers: { ...init.headers, ...nodeTokenHeaders(url) } })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Problem(0, 'memoird does not answer', 'The connection failed.')
  }
  // A session that ended shows up in whatever request comes first.
  if (response.status === 401) locked.value = true
  return response
}

async function problemOf(response: Response): Promise<Problem> {
  let body: Record<string, unknown> = {}
  try {
    body = parsePlain(await response.text()) as Record<string, unknown>
  } catch {
    // Not a problem document: the status has to do.
  }
  const text = (name: string): string => (typeof body[name] === 'string' ? (body[name] as string) : '')
  const after = Number(response.headers.get('Retry-After'))
  return new Problem(
    response.status,
    text('title') || response.statusText || `status ${response.status}`,
    text('detail'),
    after > 0 ? { ...body, retryAfter: after } : body,
  )
}
