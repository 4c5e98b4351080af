//! Two ways to lose memory in safe Rust: what is forgotten, and counted references in a cycle.
//! It does as truth.h does: TRUTH_STEPS steps and the truth, or with a number of milliseconds one in so many until
//! its standard input closes.
use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::Rc;

const STEPS: usize = 200;
const FORGOTTEN: usize = 96;

struct Node {
    other: RefCell<Option<Rc<Node>>>,
    text: [u8; 40],
}

const FORGET_LINE: u32 = line!() + 2;
fn forget(number: usize) {
    let mut block = vec![0u8; FORGOTTEN]; /* LEAK by std */
    block[0] = number as u8;
    std::mem::forget(block);
}

const TIE_LINE: u32 = line!() + 4;
fn tie(number: usize) {
    let mut text = [0u8; 40];
    text[0] = number as u8;
    let a = Rc::new(Node { other: RefCell::new(None), text }); /* LEAK by std */
    let b = Rc::new(Node { other: RefCell::new(Some(a.clone())), text: a.text }); /* LEAK by std */
    *a.other.borrow_mut() = Some(b);
}

/// Overwrites what is left of it all on the stack, so that who looks for pointers finds only those that are meant.
#[inline(never)]
fn overwrite() -> u8 {
    let mut room = [0u8; 16384];
    for (i, byte) in room.iter_mut().enumerate() {
        unsafe { std::ptr::write_volatile(byte, i as u8 & 1) };
    }
    room[77]
}

fn step(number: usize) {
    forget(number);
    tie(number);
}

fn main() {
    let pace = std::env::args().nth(1).and_then(|text| text.parse::<u64>().ok());
    if let Some(milliseconds) = pace {
        println!("running");
        std::io::stdout().flush().unwrap();
        std::thread::spawn(|| {
            let mut bytes = [0u8; 64];
            while std::io::stdin().read(&mut bytes).map_or(false, |n| n > 0) {}
            std::process::exit(0);
        });
        for number in 0.. {
            step(number);
            if number == STEPS / 2 {
                println!("warm");
            }
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        }
    }
    for number in 0..STEPS {
        step(number);
    }
    let node = std::mem::size_of::<Node>() + 2 * std::mem::size_of::<usize>(); // and its two counts
    let lines = [(FORGET_LINE, FORGOTTEN), (TIE_LINE, node), (TIE_LINE + 1, node)];
    let texts = lines.iter().map(|(line, bytes)| {
        format!(
            "{{\"line\":{},\"alloc_blocks\":{},\"alloc_bytes\":{},\"live_blocks\":{},\"live_bytes\":{}}}",
            line, STEPS, STEPS * bytes, STEPS, STEPS * bytes
        )
    });
    println!("TRUTH {{\"lines\":[{}]}}", texts.collect::<Vec<_>>().join(","));
    if overwrite() > 1 {
        println!("never");
    }
}
