// A canvas that is as wide as the page gives it, sharp on every screen, and painted again when its size, the theme or what
// it shows changes.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { RefObject } from 'preact'
import { theme } from '../base/theme'

export interface Canvas {
  canvas: RefObject<HTMLCanvasElement>
  width: number // CSS pixels; 0 before the first layout
}

/** The width of the box that a canvas stands in: known before it is decided how high the picture is. */
export function useWidth(): { box: RefObject<HTMLDivElement>; width: number } {
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const watcher = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)))
    watcher.observe(element)
    setWidth(Math.floor(element.clientWidth))
    return () => watcher.disconnect()
  }, [])
  return { box, width }
}

/** Paint after every render; whoever uses it renders again when something changed. */
export function usePaint(
  canvas: RefObject<HTMLCanvasElement>,
  width: number,
  height: number,
  paint: (pen: CanvasRenderingContext2D) => void,
): void {
  const [ratio, setRatio] = useState(() => devicePixelRatio)
  useEffect(() => {
    // A window that moves to another screen, or is zoomed, has other pixels.
    const media = matchMedia(`(resolution: ${ratio}dppx)`)
    const changed = (): void => setRatio(devicePixelRatio)
    media.addEventListener('change', changed)
    return () => media.removeEventListener('change', changed)
  }, [ratio])
  void theme.value
  useLayoutEffect(() => {
    const element = canvas.current
    const pen = element?.getContext('2d')
    if (!element || !pen || width <= 0 || height <= 0) return
    element.width = Math.round(width * ratio)
    element.height = Math.round(height * ratio)
    element.style.width = `${width}px`
    element.style.height = `${height}px`
    pen.scale(ratio, ratio)
    paint(pen)
  })
}

/** As much of the text as fits, with an ellipsis where it does not; '' where not even that says anything. */
export function fitText(text: string, width: number, measure: (text: string) => number): string {
  if (width < 24) return ''
  if (measure(text) <= width) return text
  let low = 0
  let high = text.length
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (measure(text.slice(0, middle) + '…') <= width) low = middle
    else high = middle - 1
  }
  return low < 2 ? '' : text.slice(0, low) + '…'
}
