// Services with a planted leak, in JavaScript. Usage: service.js heap|buffer leak|steady
const [kind, mode] = process.argv.slice(2)
const kept = []
let number = 0
setInterval(() => {
  for (let i = 0; i < 20; i++) {
    number++
    kept.push(kind === 'buffer' ? Buffer.alloc(800 * 20, number & 255) : { number, text: 'x'.repeat(20) + number, list: Array(200).fill(number + 0.5) })
    if (kind === 'buffer') break
  }
  if (mode === 'steady' && kept.length > 1000) kept.splice(0, kept.length - 1000)
}, 20)
