//! The posting lists of the full-text search, as PostgreSQL stores them.
//!
//! A list holds the chunks of one bucket of [`BUCKET_ROWS`] chunk rows that hold one word. Its `body` is, for each chunk
//! by its row: the distance from the row before, the number of the word's places and the number of all words of the
//! chunk; its `places` are the distances between the word's places, chunk by chunk. All are numbers of seven bits to the
//! byte, the lowest first. The places lie apart, for only phrases need them.

use std::collections::BTreeMap;

use crate::shared_index::words::{NEXT_PLACE, Places};

/// The number of chunk rows whose words share a list. A change of a chunk writes the lists of its words in its bucket
/// again; a question reads those of its words in all buckets.
pub(crate) const BUCKET_ROWS: i64 = 1_024;

/// The number of the bucket of a chunk row.
pub(crate) fn bucket_of(row: i64) -> i32 {
    i32::try_from(row / BUCKET_ROWS).unwrap_or(i32::MAX)
}

/// A chunk in a posting list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) row: i64,
    /// How often the chunk holds the word.
    pub(crate) count: u32,
    /// The number of all words of the chunk.
    pub(crate) length: u32,
}

/// A chunk in a posting list that is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// The number of all words of the chunk.
    pub(crate) length: u32,
    pub(crate) places: Places,
}

/// A posting list that is being changed, by chunk row.
pub(crate) type PostingList = BTreeMap<i64, Occurrence>;

/// Writes a list as its body and its places.
pub(crate) fn encode(bucket: i32, list: &PostingList) -> (Vec<u8>, Vec<u8>) {
    let (mut body, mut all_places) = (Vec::new(), Vec::new());
    let mut before = first_row(bucket);
    for (row, Occurrence { length, places }) in list {
        put(&mut body, row.abs_diff(before) as u32);
        put(&mut body, places.len() as u32);
        put(&mut body, *length);
        before = *row;
        let mut place_before = 0;
        for place in places {
            put(&mut all_places, place - place_before);
            place_before = *place;
        }
    }
    (body, all_places)
}

/// Reads a whole list; `None` if it is damaged.
pub(crate) fn decode(bucket: i32, body: &[u8], places: &[u8]) -> Option<PostingList> {
    let mut places = Numbers(places);
    entries(bucket, body)
        .map(|entry| {
            let Entry { row, count, length } = entry?;
            Some((row, Occurrence { length, places: read_places(&mut places, count)? }))
        })
        .collect()
}

/// Reads the chunks of a list without their places; a damaged list ends with `None`.
pub(crate) fn entries(bucket: i32, body: &[u8]) -> impl Iterator<Item = Option<Entry>> {
    let mut numbers = Numbers(body);
    let mut row = first_row(bucket);
    std::iter::from_fn(move || {
        if numbers.0.is_empty() {
            return None;
        }
        let mut next = || {
            row += i64::from(numbers.next()?);
            Some(Entry { row, count: numbers.next()?, length: numbers.next()? })
        };
        let entry = next();
        if entry.is_none() {
            numbers = Numbers(&[]);
        }
        Some(entry)
    })
}

/// The chunks in which the words of a phrase stand together, given the lists of its words in one bucket.
pub(crate) fn phrase(lists: &[PostingList]) -> Vec<Entry> {
    let Some((first, rest)) = lists.split_first() else { return Vec::new() };
    let mut found = Vec::new();
    for (row, Occurrence { length, places }) in first {
        let others: Option<Vec<&Places>> =
            rest.iter().map(|list| list.get(row).map(|occurrence| &occurrence.places)).collect();
        let Some(others) = others else { continue };
        let stands_at = |place: &&u32| {
            let mut expected = **place;
            others.iter().all(|places| {
                expected += NEXT_PLACE;
                places.binary_search(&expected).is_ok()
            })
        };
        let count = places.iter().filter(stands_at).count() as u32;
        if count > 0 {
            found.push(Entry { row: *row, count, length: *length });
        }
    }
    found
}

fn first_row(bucket: i32) -> i64 {
    i64::from(bucket) * BUCKET_ROWS
}

fn read_places(numbers: &mut Numbers<'_>, count: u32) -> Option<Places> {
    let mut place = 0_u32;
    let mut next = || {
        place = place.checked_add(numbers.next()?)?;
        Some(place)
    };
    (0..count).map(|_| next()).collect()
}

fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads numbers of seven bits to the byte.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(i64, u32, &[u32])]) -> PostingList {
        let one = |(row, length, places): &(i64, u32, &[u32])| {
            (*row, Occurrence { length: *length, places: places.to_vec() })
        };
        entries.iter().map(one).collect()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let seed = 7;
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let bucket = random.i32(0..1_000);
            let mut written = PostingList::new();
            for _ in 0..random.usize(0..40) {
                let row = first_row(bucket) + random.i64(0..BUCKET_ROWS);
                let mut places: Vec<u32> = (0..random.usize(1..5)).map(|_| random.u32(..1 << 28)).collect();
                places.sort_unstable();
                written.insert(row, Occurrence { length: random.u32(1..), places });
            }
            let (body, places) = encode(bucket, &written);
            assert_eq!(decode(bucket, &body, &places).as_ref(), Some(&written));
            let read: Option<Vec<Entry>> = entries(bucket, &body).collect();
            assert_eq!(read.unwrap().len(), written.len());
        }
    }

    #[test]
    fn a_damaged_list_is_refused() {
        let (body, places) = encode(3, &list(&[(12_290, 200, &[4, 700]), (12_300, 9, &[1])]));
        for end in 1..body.len() {
            let cut: Option<Vec<Entry>> = entries(3, &body[..end]).collect();
            assert!(cut.is_none_or(|entries| entries.len() < 2));
        }
        assert_eq!(decode(3, &body, &places[..2]), None);
        let seed = 11;
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..random.usize(0..30)).map(|_| random.u8(..)).collect();
            let _ = decode(0, &bytes, &bytes);
        }
    }

    #[test]
    fn a_phrase_stands_together_in_one_column() {
        let (read, file) = (
            list(&[(1, 9, &[0, 9]), (2, 9, &[0]), (5, 9, &[1])]),
            list(&[(1, 9, &[3, 12]), (2, 9, &[4]), (4, 9, &[3])]),
        );
        assert_eq!(phrase(&[read.clone(), file]), [Entry { row: 1, count: 2, length: 9 }]);
        assert_eq!(phrase(&[read]).len(), 3);
        assert!(phrase(&[]).is_empty());
    }
}
