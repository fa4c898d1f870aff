//! Options of lists: which revision, how much, from where.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>.

use minato_meta::{ApiError, ContinueToken, FieldError, FieldErrorClass, FieldErrors, GroupKind, Revision};
use minato_storage::cache::ReadAt;

use crate::request::Query;

/// Options of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) at: ReadAt,
    /// Most items of the answer; zero for all.
    pub(crate) limit: usize,
    /// First key that counts, relative to the collection, and whether the list goes on at the revision of a token.
    pub(crate) start: Option<String>,
}

/// What may not be combined with what.
struct Checks(FieldErrors);

impl Checks {
    fn forbid(&mut self, wrong: bool, field: &str, why: &str) {
        if wrong {
            self.0.push(FieldError::forbidden(field, why));
        }
    }

    fn finish(self) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "ListOptions"),
            "",
            self.0,
        ))
    }
}

const MATCH: &str = "resourceVersionMatch";

/// A revision as clients send it.
///
/// # Errors
/// 400 for anything but a decimal number.
pub(crate) fn parse_revision(text: &str) -> Result<Revision, ApiError> {
    text.parse()
        .map(Revision)
        .map_err(|_| ApiError::bad_request(format!("invalid resource version: {text:?} is not a revision")))
}

/// The state that a plain `resourceVersion` asks a read for.
///
/// # Errors
/// 400 for anything but a decimal number.
pub(crate) fn at_revision(query: &Query) -> Result<ReadAt, ApiError> {
    Ok(match query.get_non_empty("resourceVersion") {
        None => ReadAt::Newest,
        Some("0") => ReadAt::Any,
        Some(text) => ReadAt::NotOlderThan(parse_revision(text)?),
    })
}

impl ListOptions {
    /// Reads them.
    ///
    /// # Errors
    /// 422 for combinations that make no sense, 400 for values that are none.
    pub(crate) fn from_query(query: &Query) -> Result<Self, ApiError> {
        let revision = query.get_non_empty("resourceVersion");
        let matching = query.get_non_empty(MATCH);
        let token = query.get_non_empty("continue");
        let mut checks = Checks(FieldErrors::default());
        if let Some(matching) = matching {
            let why = "resourceVersionMatch needs a resourceVersion";
            checks.forbid(revision.is_none(), MATCH, why);
            let why = "resourceVersionMatch does not go with continue";
            checks.forbid(token.is_some(), MATCH, why);
            let exact = matching == "Exact";
            if !exact && matching != "NotOlderThan" {
                checks.0.push(FieldError::not_supported(
                    MATCH,
                    matching,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            let why = "resourceVersionMatch \"Exact\" does not go with resourceVersion \"0\"";
            checks.forbid(exact && revision == Some("0"), MATCH, why);
        }
        let why = "sendInitialEvents is for watches";
        checks.forbid(
            query.get_non_empty("sendInitialEvents").is_some(),
            "sendInitialEvents",
            why,
        );
        checks.finish()?;
        let limit = limit(query)?;
        if let Some(token) = token {
            return Self::go_on(token, revision, limit);
        }
        let at = match at_revision(query)? {
            // Without a match, a limit makes a revision exact: so it was before matches could be named.
            ReadAt::NotOlderThan(revision) if matching == Some("Exact") || matching.is_none() && limit > 0 => {
                ReadAt::Exact(revision)
            }
            at => at,
        };
        Ok(Self {
            at,
            limit: if at == ReadAt::Any { 0 } else { limit },
            start: None,
        })
    }

    fn go_on(token: &str, revision: Option<&str>, limit: usize) -> Result<Self, ApiError> {
        if revision.is_some_and(|revision| revision != "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token =
            ContinueToken::decode(token).map_err(|e| ApiError::bad_request(format!("invalid continue token: {e}")))?;
        Ok(Self {
            at: token.revision.map_or(ReadAt::Newest, ReadAt::Exact),
            limit,
            start: Some(token.start),
        })
    }
}

fn limit(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get_non_empty("limit") else {
        return Ok(0);
    };
    let limit: i64 = text
        .parse()
        .map_err(|_| ApiError::bad_request(format!("invalid limit: {text:?} is not a number")))?;
    Ok(usize::try_from(limit).unwrap_or(0))
}

/// Checks what a watch may say of revisions; `initial_events` is what it says of these.
///
/// # Errors
/// 422 for combinations that make no sense.
pub(crate) fn check_watch(query: &Query, initial_events: Option<bool>) -> Result<(), ApiError> {
    let mut checks = Checks(FieldErrors::default());
    let matching = query.get_non_empty(MATCH);
    if initial_events.is_some() {
        let why = "sendInitialEvents needs resourceVersionMatch NotOlderThan";
        checks.forbid(matching != Some("NotOlderThan"), MATCH, why);
    }
    if let Some(matching) = matching {
        let why = "resourceVersionMatch is for watches with sendInitialEvents only";
        checks.forbid(initial_events.is_none(), MATCH, why);
        if matching != "NotOlderThan" {
            let class = FieldErrorClass::NotSupported;
            let error = FieldError::new(class, MATCH, matching, "supported values: \"NotOlderThan\"");
            checks.0.push(error);
        }
        let why = "resourceVersionMatch does not go with continue";
        checks.forbid(query.get_non_empty("continue").is_some(), MATCH, why);
    }
    checks.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<ListOptions, u16> {
        ListOptions::from_query(&Query::parse(query)).map_err(|e| e.code())
    }

    fn at(query: &str) -> (ReadAt, usize) {
        let options = read(query).unwrap();
        assert_eq!(options.start, None);
        (options.at, options.limit)
    }

    #[test]
    fn revision_match_and_limit_decide_what_is_shown() {
        assert_eq!(at(""), (ReadAt::Newest, 0));
        assert_eq!(at("limit=5"), (ReadAt::Newest, 5));
        assert_eq!(at("limit=-5"), (ReadAt::Newest, 0));
        assert_eq!(at("resourceVersion=0"), (ReadAt::Any, 0));
        assert_eq!(at("resourceVersion=0&limit=5"), (ReadAt::Any, 0));
        assert_eq!(
            at("resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            (ReadAt::Any, 0)
        );
        assert_eq!(at("resourceVersion=7"), (ReadAt::NotOlderThan(Revision(7)), 0));
        assert_eq!(at("resourceVersion=7&limit=5"), (ReadAt::Exact(Revision(7)), 5));
        assert_eq!(
            at("resourceVersion=7&resourceVersionMatch=Exact"),
            (ReadAt::Exact(Revision(7)), 0)
        );
        let not_older = "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan";
        assert_eq!(at(not_older), (ReadAt::NotOlderThan(Revision(7)), 5));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(read("resourceVersionMatch=Exact"), Err(422));
        assert_eq!(read("resourceVersion=7&resourceVersionMatch=Latest"), Err(422));
        assert_eq!(read("resourceVersion=0&resourceVersionMatch=Exact"), Err(422));
        assert_eq!(read("sendInitialEvents=true"), Err(422));
        assert_eq!(read("resourceVersion=-1"), Err(400));
        assert_eq!(read("limit=many"), Err(400));
        assert_eq!(read("continue=x"), Err(400));
        let token = |revision| {
            let start = "a/b\0".to_owned();
            ContinueToken { revision, start }.encode()
        };
        let old = token(Some(Revision(7)));
        assert_eq!(read(&format!("continue={old}&resourceVersion=7")), Err(400));
        assert_eq!(
            read(&format!(
                "continue={old}&resourceVersion=0&resourceVersionMatch=NotOlderThan"
            )),
            Err(422)
        );
        let options = read(&format!("continue={old}&limit=3")).unwrap();
        assert_eq!((options.at, options.limit), (ReadAt::Exact(Revision(7)), 3));
        assert_eq!(options.start.as_deref(), Some("a/b\0"));
        assert_eq!(read(&format!("continue={}", token(None))).unwrap().at, ReadAt::Newest);
    }

    #[test]
    fn watches_name_a_match_for_initial_events_only() {
        let check = |query: &str, initial| check_watch(&Query::parse(query), initial).map_err(|e| e.code());
        assert_eq!(check("", None), Ok(()));
        assert_eq!(check("resourceVersionMatch=NotOlderThan", Some(true)), Ok(()));
        assert_eq!(check("resourceVersionMatch=NotOlderThan", None), Err(422));
        assert_eq!(check("", Some(false)), Err(422));
        assert_eq!(check("resourceVersionMatch=Exact", Some(true)), Err(422));
    }
}
