//! The call stacks of a process' file.

use super::super::symbols::Files;
use super::super::unwind::{Copied, Module, Unwinder};
use super::next;
use foldhash::quality::FixedState;
use mkey_trace::format::{Recording, Stack};
use mkey_trace::raw::{File, Record, Slot};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

/// Stacks that are in the recording, by what they consist of.
#[derive(Debug, Default)]
pub struct Stacks {
    by_hash: HashMap<u64, Vec<u32>>,
}

impl Stacks {
    /// Adds the stacks of a file to the recording: by record, where they are there.
    pub fn add(
        &mut self,
        file: &File<'_>,
        files: &Files,
        program: &[u8],
        recording: &mut Recording,
    ) -> HashMap<Slot, u32> {
        let mut modules: BTreeMap<u32, Vec<Module<'_>>> = BTreeMap::new();
        for (_, record) in file.records() {
            if let Record::Module(module, name) = record {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                // The loader's list has no name for the program itself.
                let path = if name.is_empty() { program } else { name };
                let range = module.start..module.end;
                let module = Module { path, bias: module.bias, range };
                modules.entry(0).or_default();
                modules.entry(epoch_of(&record)).or_default().push(module);
            }
        }
        let mut unwinders: HashMap<u32, Unwinder> = HashMap::new();
        let mut ids = HashMap::new();
        for (slot, record) in file.records() {
            let Record::Stack(stack, bytes) = record else { continue };
            // One whose list was not written to its end goes by the list before.
            let Some((epoch, modules)) = modules.range(..=stack.epoch).next_back() else {
                continue;
            };
            let unwinder = unwinders
                .entry(*epoch)
                .or_insert_with(|| Unwinder::new(files, modules.iter().cloned()));
            let copied = Copied { ip: stack.ip, sp: stack.sp, fp: stack.fp, lr: stack.lr, bytes };
            let (frames, cut) = unwinder.frames(&copied);
            if !frames.is_empty() {
                ids.insert(slot, self.id(Stack { id: 0, frames, cut }, &mut recording.stacks));
            }
        }
        ids
    }

    /// The `id` of a stack, which is added if it is not there.
    fn id(&mut self, mut stack: Stack, all: &mut Vec<Stack>) -> u32 {
        let hash = FixedState::default().hash_one((&stack.frames, stack.cut));
        let ids = self.by_hash.entry(hash).or_default();
        let same = |id: &&u32| {
            Recording::by_id(all, **id)
                .is_some_and(|other| (&other.frames, other.cut) == (&stack.frames, stack.cut))
        };
        if let Some(id) = ids.iter().find(same) {
            return *id;
        }
        stack.id = next(all);
        ids.push(stack.id);
        all.push(stack);
        next(all) - 1
    }
}

fn epoch_of(record: &Record<'_>) -> u32 {
    match record {
        Record::Module(module, _) => module.epoch,
        _ => 0,
    }
}
