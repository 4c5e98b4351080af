// A part of the page that is loaded when it is first shown.
import type { ComponentType, JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { Empty, Waiting } from './parts'

/** A component that waits for its module, with `rows` of a placeholder meanwhile. The module stays loaded. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>, rows = 8): (props: P) => JSX.Element {
  let loaded: ComponentType<P> | null = null
  return function Later(props: P): JSX.Element {
    const [state, setState] = useState<'waiting' | 'there' | 'failed'>(loaded ? 'there' : 'waiting')
    useEffect(() => {
      if (loaded) return
      load().then(
        (component) => {
          loaded = component
          setState('there')
        },
        () => setState('failed'),
      )
    }, [])
    if (state === 'there' && loaded) {
      const Part = loaded as ComponentType<object>
      return <Part {...props} />
    }
    if (state === 'failed')
      return (
        <Empty title="This part of the page could not be loaded">
          <span>memoird may have been replaced by another version: load the page again.</span>
        </Empty>
      )
    return <Waiting rows={rows} />
  }
}
