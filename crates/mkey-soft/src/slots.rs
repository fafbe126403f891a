//! Objects by handle. A handle counts how often its place was reused, so that a stale or garbled
//! one is found out (R-ERR-10).

/// Places for objects of one kind.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    most: u32,
}

/// Objects of one kind that a device holds, unless their table says otherwise.
pub(crate) const MOST: u32 = 1 << 20;

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::with_room_for(MOST)
    }
}

fn split(handle: u64) -> (u32, usize) {
    ((handle >> 32) as u32, (handle as u32 as usize).wrapping_sub(1))
}

impl<T> Slots<T> {
    /// No objects, and room for so many.
    pub(crate) fn with_room_for(most: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), most }
    }

    /// Keeps what `make` makes of the handle it will have; `None` if there is no room.
    pub(crate) fn insert_with<R>(&mut self, make: impl FnOnce(u64) -> (T, R)) -> Option<R> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.entries.len()).ok().filter(|&i| i < self.most)?;
                self.entries.push(Entry { generation: 1, value: None });
                // Removing allocates nothing.
                self.free.reserve(self.entries.len());
                index
            }
        };
        let entry = self.entries.get_mut(index as usize)?;
        let (value, result) = make(u64::from(entry.generation) << 32 | u64::from(index + 1));
        entry.value = Some(value);
        Some(result)
    }

    /// Keeps `value`; its handle.
    pub(crate) fn insert(&mut self, value: T) -> Option<u64> {
        self.insert_with(|handle| (value, handle))
    }

    /// How many objects there have been at a time.
    pub(crate) fn most_ever(&self) -> usize {
        self.entries.len()
    }

    /// The object with this handle.
    pub(crate) fn get(&self, handle: u64) -> Option<&T> {
        let (generation, index) = split(handle);
        let entry = self.entries.get(index)?;
        (entry.generation == generation).then_some(entry.value.as_ref()).flatten()
    }

    /// The object with this handle, to change.
    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let (generation, index) = split(handle);
        let entry = self.entries.get_mut(index)?;
        (entry.generation == generation).then_some(entry.value.as_mut()).flatten()
    }

    /// Takes the object out; its handle is stale from now on.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let (generation, index) = split(handle);
        let entry = self.entries.get_mut(index)?;
        if entry.generation != generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index as u32);
        Some(value)
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// Takes all objects out.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if let Some(value) = entry.value.take() {
                entry.generation = entry.generation.wrapping_add(1).max(1);
                self.free.push(index as u32);
                all.push(value);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_takes_no_more() {
        let mut slots = Slots::with_room_for(2);
        let first = slots.insert(1).unwrap();
        assert!(slots.insert(2).is_some());
        assert_eq!(slots.insert(3), None);
        slots.remove(first);
        assert!(slots.insert(4).is_some());
    }

    #[test]
    fn r_err_10_stale_and_garbled_handles_name_nothing() {
        let mut slots = Slots::default();
        let first = slots.insert('a').unwrap();
        assert_eq!(slots.get(first), Some(&'a'));
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        let second = slots.insert('b').unwrap();
        assert_ne!(first, second);
        for garbled in [0, first, !second, second ^ 1 << 40, second + 1, u64::MAX] {
            assert_eq!(slots.get(garbled), None, "{garbled:#x}");
        }
        assert_eq!(slots.get(second), Some(&'b'));
    }
}
