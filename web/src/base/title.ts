// What the page is about where that is more than its screen: the process that one looks at. It names the browser's tab.
import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'

export const subject = signal('')

/** As long as the view is there. */
export function useSubject(name: string): void {
  useEffect(() => {
    subject.value = name
    return () => {
      subject.value = ''
    }
  }, [name])
}
