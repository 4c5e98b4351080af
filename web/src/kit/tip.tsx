// One tooltip for the whole page: whatever has data-tip shows it on hover and on keyboard focus.
import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'

interface Shown {
  text: string
  x: number
  y: number
  below: number
}

const shown = signal<Shown | null>(null)
const MARGIN = 6
const DELAY_MS = 250
let timer: ReturnType<typeof setTimeout> | undefined

function show(target: EventTarget | null, delay: number): void {
  clearTimeout(timer)
  const element = (target as Element | null)?.closest?.('[data-tip]')
  const text = element?.getAttribute('data-tip')
  if (!element || !text) {
    shown.value = null
    return
  }
  const put = (): void => {
    const at = element.getBoundingClientRect()
    // It may have gone while we waited.
    if (element.isConnected) shown.value = { text, x: at.left + at.width / 2, y: at.top, below: at.bottom }
  }
  if (shown.value || delay === 0) put()
  else timer = setTimeout(put, delay)
}

export function startTips(): void {
  document.addEventListener('pointerover', (event) => {
    if (event.pointerType !== 'touch') show(event.target, DELAY_MS)
  })
  document.addEventListener('focusin', (event) => {
    if ((event.target as Element).matches?.(':focus-visible')) show(event.target, 0)
  })
  document.addEventListener('focusout', () => show(null, 0))
  addEventListener('scroll', () => show(null, 0), { capture: true, passive: true })
  addEventListener('keydown', (event) => event.key === 'Escape' && show(null, 0))
}

export function Tip(): JSX.Element | null {
  const ref = useRef<HTMLDivElement>(null)
  const tip = shown.value
  useLayoutEffect(() => {
    const box = ref.current
    if (!box || !tip) return
    const size = box.getBoundingClientRect()
    const left = Math.max(MARGIN, Math.min(innerWidth - size.width - MARGIN, tip.x - size.width / 2))
    const above = tip.y - size.height - MARGIN
    box.style.left = `${left}px`
    box.style.top = `${above < MARGIN ? tip.below + MARGIN : above}px`
  }, [tip])
  return tip ? (
    <div ref={ref} class="tip" role="tooltip">
      {tip.text}
    </div>
  ) : null
}
