// The frame around the screens: head, navigation, how alive the page is, help.
import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useErrorBoundary, useReducer } from 'preact/hooks'
import { locked, post } from './api/client'
import { useResource } from './api/resource'
import type { Cluster } from './api/schema'
import type { LeaksAnswer } from './api/types'
import { live, reconnectNow, session, stale, tick } from './api/stream'
import { bytes, count, wholeDuration } from './base/format'
import { addKeys, bindings, type KeyBinding } from './base/keys'
import { go, link, place, remoteNode, screen } from './base/route'
import { choice, choose, theme, type Choice } from './base/theme'
import { subject } from './base/title'
import { later } from './kit/later'
import { Dialog } from './kit/dialog'
import { Icon, type IconName } from './kit/icon'
import { Empty, Meter } from './kit/parts'
import { Tip } from './kit/tip'
import { Login } from './views/login'
import { SCREENS, screenOf } from './views/screens'
import { leakCount, suspectsOf } from './views/suspect_model'

const NodeToken = later(() => import('./views/node_token').then((module) => module.NodeToken), 0)

const helpOpen = signal(false)

export function App(): JSX.Element {
  useEffect(() => {
    document.documentElement.dataset['theme'] = theme.value
  }, [theme.value])
  useEffect(() => addKeys(pageKeys()), [])
  if (locked.value) return <Login />
  return (
    <div class={`app${stale.value ? ' stale' : ''}`}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Head />
      <Rail />
      <Content />
      <Help />
      <Tip />
    </div>
  )
}

/** The fragment is the route, so a plain link to #main would leave the view. */
function skip(event: MouseEvent): void {
  event.preventDefault()
  document.getElementById('main')?.focus()
}

function pageKeys(): KeyBinding[] {
  const jumps = SCREENS.filter((s) => s.key).map((s) => ({
    keys: `g ${s.key}`,
    help: s.title,
    group: 'Go to',
    run: () => go(s.id),
  }))
  return [
    ...jumps,
    { keys: '?', help: 'this help', group: 'Page', run: () => (helpOpen.value = !helpOpen.value) },
    { keys: 't', help: 'light, dark, as the system', group: 'Page', run: nextTheme },
    { keys: '/', help: 'filter', group: 'Page', run: focusFilter },
    { keys: 'Escape', help: 'leave a field, close', group: 'Page', run: () => (document.activeElement as HTMLElement | null)?.blur() },
  ]
}

function focusFilter(): void {
  const field = document.querySelector<HTMLInputElement>('[data-filter]')
  if (field) field.focus()
  else go('processes')
}

const NEXT: Record<Choice, Choice> = { system: 'light', light: 'dark', dark: 'system' }
const nextTheme = (): void => choose(NEXT[choice.value])

function Head(): JSX.Element {
  const system = tick.value?.system
  const total = num(system?.['total'])
  const used = num(system?.['used'])
  const known = total != null && used != null && total > 0
  return (
    <header class="bar">
      <a class="brand" href={link('overview')} aria-label="Memoir: overview">
        <Logo />
        <span>Memoir</span>
      </a>
      <span class="node clip">{session.value?.node}</span>
      <span class="grow" />
      {known && (
        <span class="bar-memory" data-tip="memory of the machine: used, of all">
          <Meter share={used / total} label="memory used" />
          <span class="figure">
            {bytes(used)} of {bytes(total)}
          </span>
        </span>
      )}
      <LiveState />
      <button
        type="button"
        class="button plain icon"
        aria-label={`colours: ${choice.value}; change`}
        data-tip={`Colours: ${choice.value === 'system' ? 'as the system' : choice.value} (t)`}
        onClick={nextTheme}
      >
        <Icon name={choice.value === 'system' ? 'system' : choice.value === 'dark' ? 'moon' : 'sun'} />
      </button>
      <button type="button" class="button plain icon optional" aria-label="keyboard help" data-tip="Keys (?)" onClick={() => (helpOpen.value = true)}>
        <Icon name="help" />
      </button>
    </header>
  )
}

export const num = (value: unknown): number | null => (typeof value === 'number' ? value : null)

function Logo(): JSX.Element {
  return (
    <svg viewBox="0 0 20 20" aria-hidden="true">
      <rect x="1" y="3" width="18" height="14" rx="3" fill="var(--accent)" />
      <path d="M10 5.5v9M4 7.5h3.5M4 10h3.5M4 12.5h2.2M12.5 7.5H16M12.5 10H16" stroke="var(--panel)" stroke-width="1.4" stroke-linecap="round" />
    </svg>
  )
}

function LiveState(): JSX.Element {
  const [, again] = useReducer((n: number) => n + 1, 0)
  const { state, since, retryAt } = live.value
  useEffect(() => {
    if (state !== 'reconnecting') return
    const timer = setInterval(() => again(0), 1000)
    return () => clearInterval(timer)
  }, [state])
  if (state === 'live')
    return (
      <span class="live" role="status" data-tip="Figures arrive each second.">
        <span class="dot" />
        live
      </span>
    )
  if (state === 'connecting')
    return (
      <span class="live connecting" role="status">
        <span class="dot" />
        connecting
      </span>
    )
  const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000))
  return (
    <button type="button" class="live reconnecting" onClick={reconnectNow} data-tip={`memoird does not answer; next try in ${wait} s. Click to try now.`}>
      <span class="dot" />
      <span role="status">{since ? `stale for ${wholeDuration((Date.now() - since) / 1000)}, reconnecting` : 'reconnecting'}</span>
    </button>
  )
}

function Rail(): JSX.Element {
  const now = tick.value
  const cluster = useResource<Cluster>('/cluster', {}, { every: 5000 }).data
  const inCluster = cluster != null && cluster.state !== 'none'
  // A tick tells that some call sites leak; which lines of code these are takes a question.
  const leaks = useResource<LeaksAnswer>(now?.suspects ? '/leaks' : null, {}, { every: 2000 }).data
  const leaking = now?.suspects ? leakCount(suspectsOf(leaks)) : 0
  const tally: Record<string, string> = {
    processes: now ? count(now.processes) : '',
    leaks: leaking ? count(leaking) : '',
    cluster: inCluster ? count(cluster!.members.filter((m) => m.state !== 'left').length) : '',
  }
  return (
    <nav class="rail" aria-label="Screens">
      {SCREENS.filter((s) => s.icon && (s.id !== 'cluster' || inCluster)).map((s) => (
        <a
          key={s.id}
          href={link(s.id)}
          aria-label={tally[s.id] ? `${s.title} ${tally[s.id]}` : s.title}
          aria-current={screen.value === s.id || s.also?.includes(screen.value) ? 'page' : undefined}
        >
          <Icon name={s.icon as IconName} />
          <span>{s.title}</span>
          {tally[s.id] && ' '}
          {tally[s.id] && <span class={`tally${s.id === 'leaks' ? ' bad' : ''}`}>{tally[s.id]}</span>}
        </a>
      ))}
      <div class="foot">
        {session.value && (
          <>
            {session.value.user ?? session.value.name ?? `uid ${session.value.uid}`} · {session.value.role}
            <br />
            memoird {session.value.version}
            {session.value.by === 'session' && (
              <button type="button" onClick={() => void leave()}>
                Log out
              </button>
            )}
          </>
        )}
      </div>
    </nav>
  )
}

async function leave(): Promise<void> {
  await post('/logout', {}).catch(() => null) // whoever cannot log out is out already
  locked.value = true
}

function Content(): JSX.Element {
  const found = screenOf(screen.value)
  const title = found?.title ?? 'Not here'
  const about = subject.value || title
  useEffect(() => {
    const node = session.value?.node
    document.title = `${about} · ${node ? node + ' · ' : ''}Memoir`
  }, [about, session.value?.node])
  return (
    <main id="main" class={`main${found?.whole ? ' whole' : ''}`} tabIndex={-1} aria-label={title}>
      {/* A view that failed is made anew when one goes elsewhere. */}
      {remoteNode.value && (
        <div class="notice remote" role="status">
          <span>
            Node <b>{remoteNode.value}</b>, asked through {session.value?.node ?? 'this node'}
          </span>
          <NodeToken key={remoteNode.value} node={remoteNode.value} />
          <a href={link(place.value.parts[0] === 'process' ? 'processes' : place.value.path, { node: null })}>Show this node</a>
        </div>
      )}
      <Guard key={place.value.path}>
        {found ? (
          <found.view />
        ) : (
          <Empty title={`There is no page “${place.value.path}”.`} middle>
            <a href={link('overview')}>Go to the overview</a>
          </Empty>
        )}
      </Guard>
    </main>
  )
}

/** A mistake of ours in one view must not take the page along. */
function Guard({ children }: { children: JSX.Element }): JSX.Element {
  const [error, reset] = useErrorBoundary((e) => console.error(e))
  if (!error) return children
  return (
    <Empty title="This view failed." middle>
      <span>{String(error)}</span>
      <button type="button" class="button" onClick={reset}>
        Try again
      </button>
    </Empty>
  )
}

function Help(): JSX.Element {
  const groups = new Map<string, KeyBinding[]>()
  for (const binding of bindings.value) {
    const name = binding.group ?? 'View'
    groups.set(name, [...(groups.get(name) ?? []), binding])
  }
  return (
    <Dialog title="Keys" open={helpOpen.value} onClose={() => (helpOpen.value = false)}>
      <div class="keys">
        {[...groups].map(([name, list]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {list.map((b) => [
                <dt key={b.keys}>
                  {b.keys.split(' ').map((k) => (
                    <kbd key={k}>{k === 'Escape' ? 'esc' : k === 'Enter' ? '↵' : k}</kbd>
                  ))}
                </dt>,
                <dd key={b.keys + ' '}>{b.help}</dd>,
              ])}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  )
}
