//! The order of merged lists: what the writer said goes first, what only the server has keeps its place among it.

use std::collections::HashMap;

use serde_json::Value;

/// How items of a list are told apart.
pub(crate) struct Identity<'a> {
    key: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// Objects by one key, or scalars by value.
    pub(crate) fn new(key: Option<&'a str>) -> Self {
        Self { key }
    }

    /// What tells an item apart; `None` when it lacks the key.
    pub(crate) fn of<'v>(&self, item: &'v Value) -> Option<&'v Value> {
        match self.key {
            Some(key) => item.get(key),
            None => Some(item),
        }
    }

    /// Where each item stands first. Hashed, because lists come from clients and may be long.
    fn positions<'v>(&self, list: &'v [Value]) -> HashMap<&'v Value, usize> {
        let mut positions = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            if let Some(id) = self.of(item) {
                positions.entry(id).or_insert(at);
            }
        }
        positions
    }
}

/// Orders `merged`: items named by `wanted` follow its order; the others keep their order of `live`, and each stands
/// before the first wanted item that it preceded there.
pub(crate) fn interleave(merged: Vec<Value>, wanted: &[Value], live: &[Value], identity: &Identity<'_>) -> Vec<Value> {
    let (wanted, live) = (identity.positions(wanted), identity.positions(live));
    let mut ours: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for item in merged {
        let find = |positions: &HashMap<&Value, usize>| identity.of(&item).and_then(|id| positions.get(id).copied());
        let place = find(&live);
        match find(&wanted) {
            Some(at) => ours.push((at, place, item)),
            None => others.push((place.unwrap_or(usize::MAX), item)),
        }
    }
    ours.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(place, _)| *place);
    let mut out = Vec::with_capacity(ours.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in ours {
        if let Some(place) = place {
            while let Some((_, other)) = others.next_if(|(other, _)| *other < place) {
                out.push(other);
            }
        }
        out.push(item);
    }
    out.extend(others.map(|(_, item)| item));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order(merged: &str, wanted: &str, live: &str) -> String {
        let list = |text: &str| text.chars().map(|c| json!(c.to_string())).collect::<Vec<_>>();
        interleave(list(merged), &list(wanted), &list(live), &Identity::new(None))
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    #[test]
    fn server_items_keep_their_neighbours() {
        for (merged, wanted, live, result) in [
            ("ab", "ba", "ab", "ba"),
            ("axb", "ba", "axb", "xba"),
            ("xab", "ab", "xab", "xab"),
            ("axb", "ab", "axb", "axb"),
            ("abx", "ab", "abx", "abx"),
            ("abn", "nab", "ab", "nab"),
            ("xyn", "n", "xy", "nxy"),
            ("", "ab", "", ""),
        ] {
            assert_eq!(order(merged, wanted, live), result, "{merged} {wanted} {live}");
        }
    }
}
