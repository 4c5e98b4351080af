// Services with a planted leak, in Rust. Usage: service KIND leak|steady. Comments LINE:KIND mark what is to be named.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

const KEPT_MAX: usize = 1000;

struct Node {
    other: RefCell<Option<Rc<Node>>>,
    data: Vec<u8>,
}

#[inline(never)]
fn store(all: &mut VecDeque<Vec<u8>>, number: usize, steady: bool) {
    let mut entry = Vec::new();
    entry.resize(8000 + number % 7, 1u8); // LINE:vec
    all.push_back(entry);
    if steady && all.len() > KEPT_MAX {
        all.pop_front();
    }
}

#[inline(never)]
fn cycle(steady: bool) -> usize {
    let one = Rc::new(Node { other: RefCell::new(None), data: vec![1u8; 8000] }); // LINE:rc
    let other = Rc::new(Node { other: RefCell::new(Some(one.clone())), data: Vec::new() });
    *one.other.borrow_mut() = Some(other.clone());
    if steady {
        *one.other.borrow_mut() = None;
    }
    one.data.len() + other.data.len()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let steady = words.len() > 2 && words[2] == "steady";
    let mut all = VecDeque::new();
    let mut sum = 0;
    for number in 0.. {
        if words[1] == "vec" {
            store(&mut all, number, steady);
        } else {
            sum += cycle(steady);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{}", sum);
}
