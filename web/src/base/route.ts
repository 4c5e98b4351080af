// Where the viewer is, in the address: #/processes?where=user%3Dann&sort=-rss. The fragment never travels, so
// any file server can hold the page, a filter never lands in a log, and a login in between keeps it.
import { computed, signal } from '@preact/signals'

export interface Place {
  /** "processes", "process/4242": never empty, no slashes at its ends */
  path: string
  parts: string[]
  query: URLSearchParams
}

export const HOME = 'overview'

export function parsePlace(hash: string): Place {
  const text = hash.replace(/^#?\/?/, '')
  const at = text.indexOf('?')
  const raw = (at < 0 ? text : text.slice(0, at)).replace(/\/+$/, '')
  const parts = (raw || HOME).split('/').map(decode)
  return { path: parts.join('/'), parts, query: new URLSearchParams(at < 0 ? '' : text.slice(at + 1)) }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** Screens that can show another node of the cluster; the word `node` of their address says which. */
const REMOTE_SCREENS: ReadonlySet<string> = new Set(['process', 'processes', 'devices', 'leaks', 'containers'])

export type Words = Record<string, string | number | boolean | null | undefined>

/** The address of a view: link('process/4242', {tab: 'sites'}). Words without a value are left out. From a view of another
 * node, links lead to views of that node; {node: null} leads back to this one. */
export function link(path: string, words: Words = {}): string {
  const query = new URLSearchParams()
  const all = words['node'] === undefined && isRemoteScreen(path) ? { ...words, node: remoteNode.value } : words
  for (const [name, value] of Object.entries(all))
    if (value != null && value !== '' && value !== false) query.set(name, value === true ? '1' : String(value))
  const text = query.toString()
  return `#/${path.split('/').map(encodeURIComponent).join('/')}${text ? '?' + text : ''}`
}

/** `place` with some words changed; null takes one away. */
export function withWords(place: Place, words: Words): string {
  const all: Words = Object.fromEntries(place.query)
  return link(place.path, { ...all, ...words })
}

const inBrowser = typeof location !== 'undefined'

export const place = signal<Place>(parsePlace(inBrowser ? location.hash : ''))
/** The first part alone: which screen. */
export const screen = computed(() => place.value.parts[0] ?? HOME)

const isRemoteScreen = (path: string): boolean => REMOTE_SCREENS.has(path.split('/')[0] ?? '')

/** The other node that this view is about; '' for the node that serves the page. */
export const remoteNode = computed(() => (isRemoteScreen(place.value.path) ? (place.value.query.get('node') ?? '') : ''))

export function go(path: string, words?: Words): void {
  location.hash = link(path, words)
}

/** Change words of this view's address. What one types or drags should not fill the history of the browser: such
 * changes replace the address, steps that one may want to take back (`step`) are new ones. */
export function setWords(words: Words, step = false): void {
  const next = withWords(place.value, words)
  if (next === withWords(place.value, {})) return
  if (step) {
    location.hash = next
  } else {
    history.replaceState(null, '', next)
    place.value = parsePlace(next)
  }
}

/** A word of the address, or its default. Reads the signal: components that call it follow the address. */
export function word(name: string, otherwise = ''): string {
  return place.value.query.get(name) ?? otherwise
}

export function startRouting(): void {
  addEventListener('hashchange', () => {
    place.value = parsePlace(location.hash)
  })
}
