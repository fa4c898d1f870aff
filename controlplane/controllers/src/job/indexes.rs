//! Sets of completion indexes, and the text that statuses keep them in: `1,3-5,7`.

/// A set of indexes as closed intervals, in order, none of which touches the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// The indexes below `completions` that a text names. What is no number or interval is left out: this is our own
    /// text, or has been validated.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        let cut = |(first, last): (i32, i32)| (first.max(0), last.min(completions - 1));
        let all = text.split(',').filter_map(interval).map(cut);
        Self::of(all.filter(|(first, last)| first <= last).collect())
    }

    fn of(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// This set with further indexes.
    pub(super) fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        let mut all = self.0.clone();
        all.extend(more.into_iter().map(|index| (index, index)));
        Self::of(all)
    }

    /// What is in this set or in the other.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after
            .checked_sub(1)
            .and_then(|at| self.0.get(at))
            .is_some_and(|(_, last)| index <= *last)
    }

    /// How many there are.
    pub(super) fn len(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many are in both sets.
    pub(super) fn common(&self, other: &Self) -> i32 {
        let (mut count, mut ours, mut theirs) = (0, self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some((a, b)), Some((c, d))) = (ours.peek(), theirs.peek()) {
            count += (b.min(d) - a.max(c) + 1).max(0);
            if b < d {
                ours.next();
            } else {
                theirs.next();
            }
        }
        count
    }

    /// The indexes from 0 to below `limit` that are not in the set, in order.
    pub(super) fn missing(&self, limit: i32) -> impl Iterator<Item = i32> + use<> {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for (first, last) in &self.0 {
            gaps.push(next..(*first).min(limit));
            next = last.saturating_add(1);
        }
        gaps.push(next..limit);
        gaps.into_iter().flatten()
    }

    /// The text of a status.
    pub(super) fn text(&self) -> String {
        let part = |(first, last): &(i32, i32)| match last - first {
            0 => format!("{first}"),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_a_row_are_an_interval() {
        for (indexes, text) in [
            (vec![], ""),
            (vec![7, 1, 5, 3, 4], "1,3-5,7"),
            (vec![0, 1], "0,1"),
            (vec![2, 0, 1, 1], "0-2"),
        ] {
            let set = Indexes::default().with(indexes);
            assert_eq!(set.text(), text);
            assert_eq!(Indexes::parse(text, 100), set);
        }
    }

    #[test]
    fn what_lies_beyond_the_completions_is_cut_off() {
        assert_eq!(Indexes::parse("1,3-5,7", 5).text(), "1,3,4");
        assert_eq!(Indexes::parse("1,3-5,7", 0).text(), "");
        assert_eq!(Indexes::parse("x,2-,-1,3", 10).text(), "3");
    }

    #[test]
    fn sets_are_counted_joined_and_looked_into() {
        let set = Indexes::parse("1,3-5,7", 10);
        assert_eq!(set.len(), 5);
        let inside: Vec<_> = (0..9).filter(|index| set.contains(*index)).collect();
        assert_eq!(inside, [1, 3, 4, 5, 7]);
        assert_eq!(set.missing(9).collect::<Vec<_>>(), [0, 2, 6, 8]);
        assert_eq!(set.missing(4).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(set.union(&Indexes::parse("2,8", 10)).text(), "1-5,7,8");
        assert_eq!(set.common(&Indexes::parse("0-3,5,7-9", 10)), 4);
        assert_eq!(set.common(&Indexes::default()), 0);
    }
}
