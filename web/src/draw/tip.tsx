// What stands beside the pointer, or beside what the keyboard chose. The same words go to screen readers where the picture
// has the focus, so the box itself is hidden from them.
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'

const GAP = 14

export function Tip(props: { x: number; y: number; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const element = box.current
    const around = element?.offsetParent
    if (!element || !around) return
    const fits = props.x + GAP + element.offsetWidth <= around.clientWidth
    const left = fits ? props.x + GAP : Math.max(0, props.x - GAP - element.offsetWidth)
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(props.y + GAP)}px)`
  })
  return (
    <div class="draw-tip" ref={box} aria-hidden="true">
      {props.children}
    </div>
  )
}
