// Node: objects and strings on V8's heap, Buffers outside it, then a wait.
const kept = [];
for (let i = 0; i < 300000; i++) kept.push({ key: i, text: 'value ' + i, list: [i, i + 1] });
const buffers = [];
for (let i = 0; i < 16; i++) buffers.push(Buffer.alloc(1 << 20, i));
console.log('ready');
setTimeout(() => console.log(kept.length, buffers.length), 600000);
