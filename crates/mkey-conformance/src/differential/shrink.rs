//! Makes a program smaller for as long as it still shows what it showed.

use super::program::{Data, Program, Request, Step};
use std::time::{Duration, Instant};

/// How long programs are tried: on a device that makes one wait each takes seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// The smallest program that was found for which `shows` holds, as it does for `program`.
pub fn shrink(program: &Program, mut shows: impl FnMut(&Program) -> bool) -> Program {
    let begun = Instant::now();
    let mut shows = |program: &Program| begun.elapsed() < LIMIT && shows(program);
    let mut best = program.clone();
    // Each round tries less at a time; the last one, in which nothing more goes, ends it.
    let mut size = best.steps.len().div_ceil(2).max(1);
    loop {
        let before = best.clone();
        let mut at = 0;
        while at < best.steps.len() {
            let mut smaller = best.clone();
            smaller.steps.drain(at..(at + size).min(best.steps.len()));
            if shows(&smaller) {
                best = smaller;
            } else {
                at += size;
            }
        }
        for at in 0..best.steps.len() {
            while let Some(simpler) = simpler(&best, at).into_iter().find(|program| shows(program))
            {
                best = simpler;
            }
        }
        if size == 1 && best == before {
            return best;
        }
        size = (size / 2).max(1);
    }
}

/// The program with a step made simpler, in all ways.
fn simpler(program: &Program, at: usize) -> Vec<Program> {
    let steps = match program.steps.get(at) {
        Some(Step::Post { from, chain }) => {
            let less = without_one(chain).into_iter().chain(with_one(chain, simpler_request));
            let post = |chain| Step::Post { from: *from, chain };
            less.filter(|chain| !chain.is_empty()).map(post).collect()
        }
        Some(Step::Receive { at, chain }) => {
            let less = without_one(chain).into_iter().chain(with_one(chain, |e| without_one(e)));
            let receive = |chain| Step::Receive { at: *at, chain };
            less.filter(|chain| !chain.is_empty()).map(receive).collect()
        }
        _ => Vec::new(),
    };
    let put = |step: Step| {
        let mut program = program.clone();
        if let Some(place) = program.steps.get_mut(at) {
            *place = step;
        }
        program
    };
    steps.into_iter().map(put).collect()
}

fn simpler_request(request: &Request) -> Vec<Request> {
    let mut simpler = Vec::new();
    if request.fence {
        simpler.push(Request { fence: false, ..request.clone() });
    }
    if !request.signaled {
        simpler.push(Request { signaled: true, ..request.clone() });
    }
    if let Data::Entries(entries) = &request.data {
        let with = |entries| Request { data: Data::Entries(entries), ..request.clone() };
        simpler.extend(without_one(entries).into_iter().map(with));
    }
    simpler
}

/// The list without each of its elements.
fn without_one<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let without = |at: usize| {
        let others = list.iter().enumerate().filter(|(other, _)| *other != at);
        others.map(|(_, element)| element.clone()).collect()
    };
    (0..list.len()).map(without).collect()
}

/// The list with each of its elements replaced by all that it can be replaced by.
fn with_one<T: Clone>(list: &[T], by: impl Fn(&T) -> Vec<T>) -> Vec<Vec<T>> {
    let mut lists = Vec::new();
    for (at, element) in list.iter().enumerate() {
        for new in by(element) {
            let mut list = list.to_vec();
            if let Some(place) = list.get_mut(at) {
                *place = new;
            }
            lists.push(list);
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate;
    use crate::differential::offer::Offer;

    #[test]
    fn only_what_shows_it_is_left() {
        let shows = |program: &Program| {
            let chains = program.steps.iter().filter_map(|step| match step {
                Step::Post { chain, .. } => Some(chain),
                _ => None,
            });
            chains.flatten().any(|request| {
                matches!(&request.data, Data::Entries(entries) if entries.iter().any(|e| e.at < 0))
            })
        };
        let mut shrunk = 0;
        for seed in 0..1000 {
            let program = generate::program(seed, Offer::all());
            if !shows(&program) {
                continue;
            }
            let small = shrink(&program, shows);
            let [Step::Post { chain, .. }] = small.steps.as_slice() else {
                panic!("more is left than a post:\n{small}");
            };
            let [Request { data: Data::Entries(entries), fence: false, .. }] = chain.as_slice()
            else {
                panic!("more is left than one work request:\n{small}");
            };
            assert_eq!(entries.len(), 1, "{small}");
            shrunk += 1;
        }
        assert!(shrunk > 10, "{shrunk} programs had it");
    }
}
