//! The members of a group, as recorders list them.

use crate::names::number;
use crate::packing::{put_ints, put_steps};

/// In the group's order. The world has 100,000, and it and most groups go up in equal steps: then none is kept.
#[derive(Debug, PartialEq, Eq)]
pub enum Ranks {
    Steps { first: i64, step: i64, count: usize },
    Listed(Vec<u32>),
}

impl Ranks {
    pub const NONE: Self = Self::Steps { first: 0, step: 0, count: 0 };

    /// The ranks in "[0, 1, 2]"; None when the text is no such list.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = without_spaces(text.strip_prefix(b"[")?);
        let mut ranks = Self::NONE;
        if rest == b"]" {
            return Some(ranks);
        }
        loop {
            rest = without_spaces(ranks.go_on(rest));
            let (rank, after) = number(rest)?;
            ranks.push(rank);
            match without_spaces(after) {
                b"]" => return Some(ranks),
                [b',', after @ ..] => rest = without_spaces(after),
                _ => return None,
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Steps { count, .. } => *count,
            Self::Listed(ranks) => ranks.len(),
        }
    }

    /// The global rank of a group rank.
    pub fn get(&self, index: i64) -> Option<i64> {
        let index = usize::try_from(index).ok()?;
        match self {
            Self::Steps { first, step, count } => (index < *count).then(|| first + step * index as i64),
            Self::Listed(ranks) => ranks.get(index).map(|&rank| i64::from(rank)),
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Steps { first, step, count } => put_steps(out, *count, *first, *step),
            Self::Listed(ranks) => put_ints(out, ranks.iter().map(|&rank| i64::from(rank))),
        }
    }

    /// Takes the numbers that follow in the steps there have been so far: their text is known before it is looked at.
    fn go_on<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        let Self::Steps { first, step, count } = self else { return rest };
        if *count < 2 {
            return rest;
        }
        let mut next = *first + *step * *count as i64;
        while let Some(Item { mut word, length }) = Item::of(next) {
            let mut last_digit = next % 10;
            while (0..10).contains(&last_digit) {
                let Some(Ok(raw)) = rest.get(..8).map(<[u8; 8]>::try_from) else { return rest };
                if (u64::from_le_bytes(raw) ^ word) << (64 - 8 * length) != 0 {
                    return rest;
                }
                rest = &rest[length..];
                *count += 1;
                next += *step;
                last_digit += *step;
                word = word.wrapping_add((*step as u64) << (8 * (length - 3)));
            }
        }
        rest
    }

    #[inline]
    fn push(&mut self, rank: i64) {
        match self {
            Self::Steps { first, step, count } => match *count {
                0 => (*first, *count) = (rank, 1),
                1 => (*step, *count) = (rank - *first, 2),
                so_far if rank == *first + *step * so_far as i64 => *count += 1,
                so_far => {
                    let listed = (0..so_far as i64).map(|index| (*first + *step * index) as u32);
                    *self = Self::Listed(listed.chain([rank as u32]).collect());
                }
            },
            Self::Listed(ranks) => ranks.push(rank as u32),
        }
    }
}

/// A number and ", " as text: the first byte is the lowest one of the word.
struct Item {
    word: u64,
    length: usize,
}

impl Item {
    /// None for a number that does not fit.
    #[inline]
    fn of(number: i64) -> Option<Self> {
        let mut left = u32::try_from(number).ok().filter(|&number| number < 1_000_000)?;
        let mut item = Self { word: u64::from_le_bytes(*b", \0\0\0\0\0\0"), length: 2 };
        loop {
            item.word = item.word << 8 | u64::from(b'0') | u64::from(left % 10);
            item.length += 1;
            left /= 10;
            if left == 0 {
                return Some(item);
            }
        }
    }
}

fn without_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    &text[spaces..]
}

#[cfg(test)]
mod tests {
    use super::Ranks;
    use crate::packing::put_ints;

    fn parsed(text: &str) -> Option<Vec<i64>> {
        let ranks = Ranks::parse(text.as_bytes())?;
        assert_eq!(ranks.get(ranks.len() as i64), None);
        (0..ranks.len() as i64).map(|index| ranks.get(index)).collect()
    }

    #[test]
    fn lists_of_ranks_are_read_as_python_does() {
        assert_eq!(parsed("[0, 1, 2]"), Some(vec![0, 1, 2]));
        assert_eq!(parsed("[ 7 ,8]"), Some(vec![7, 8]));
        assert_eq!(parsed("[007, 999999999]"), Some(vec![7, 999_999_999]));
        assert_eq!(parsed("[]"), Some(vec![]));
        assert_eq!(parsed("[ ]"), Some(vec![]));
        assert_eq!(parsed("[0, 1, 2,  3,4, 5]"), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(parsed("[0, 1, 2, 03]"), Some(vec![0, 1, 2, 3]));
        for text in ["[0, 1, 2, ]", "[0, 1, 2, x]", "[0, 1, 2, 3, ", "[0, 1, 2,\t3, 4]", "[0, 1, 2; 3, 4, 5]"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        for text in ["", "[", "[0", "[0,]", "[,0]", "[0 1]", " [0]", "[0]x", "[-1]", "[1234567890]", "[0\t]"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn long_lists_are_read_whatever_their_steps_and_digits_are() {
        let lists: [Vec<i64>; 6] = [
            (0..100_003).collect(),
            (0..1_000).map(|i| 5 + 8 * i).collect(),
            (0..1_000).rev().collect(),
            (999_980..1_000_020).collect(),
            vec![100_000_000; 20],
            (0..2_000).filter(|rank| rank % 700 != 699).collect(),
        ];
        for ranks in lists {
            let text = format!("{ranks:?}");
            assert_eq!(parsed(&text), Some(ranks.clone()));
            assert_eq!(parsed(&text.replace(", ", ",")), Some(ranks));
        }
    }

    #[test]
    fn equal_steps_are_not_listed_and_others_are() {
        let is_listed = |text: &str| matches!(Ranks::parse(text.as_bytes()), Some(Ranks::Listed(_)));
        for text in ["[]", "[5]", "[5, 5]", "[0, 8, 16, 24]", "[3, 2, 1, 0]"] {
            assert!(!is_listed(text), "{text}");
        }
        assert!(is_listed("[0, 1, 3]"));
        assert_eq!(parsed("[8, 16, 24, 25, 33]"), Some(vec![8, 16, 24, 25, 33]));
    }

    #[test]
    fn either_way_they_are_packed_as_numbers_are() {
        for text in ["[]", "[5]", "[5, 5]", "[0, 8, 16, 24]", "[3, 2, 1, 0]", "[0, 1, 3]", "[9, 9, 1000]"] {
            let (mut packed, mut expected) = (Vec::new(), Vec::new());
            Ranks::parse(text.as_bytes()).unwrap().put(&mut packed);
            put_ints(&mut expected, parsed(text).unwrap().into_iter());
            assert_eq!(packed, expected, "{text}");
        }
    }
}
