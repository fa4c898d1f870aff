//! From what is and what is asked for to what will be. Pure.

use crate::diagnostics::Path;
use crate::schema::{OnUpdate, Schema, Source};
use crate::value::{Object, Value};

/// What will be.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) state: Object,
    /// Attributes whose change needs a new resource.
    pub(crate) replaces: Vec<Path>,
    /// Whether anything is to be done.
    pub(crate) changes: bool,
}

/// Plans a creation (nothing is there before) or an update.
pub(crate) fn plan(schema: &Schema, prior: Option<&Object>, proposed: &Object, config: &Object) -> Planned {
    let mut state = Object::default();
    let mut replaces = Vec::new();
    let mut changes = prior.is_none();
    for attribute in &schema.attributes {
        let name = attribute.name;
        let configured = config.get(name);
        let value = match (&attribute.source, prior) {
            (Source::Default(value), _) if configured.is_null() => value,
            (Source::Either | Source::Computed, None) if configured.is_null() => &Value::Unknown,
            (Source::Either | Source::Computed, Some(prior)) if configured.is_null() => prior.get(name),
            _ => proposed.get(name),
        };
        if let Some(prior) = prior
            && value != prior.get(name)
        {
            changes = true;
            if attribute.replaces {
                replaces.push(Path::attribute(name));
            }
        }
        state.set(name, value.clone());
    }
    if let Some(prior) = prior
        && changes
    {
        let computed = schema.attributes.iter().filter(|a| a.source == Source::Computed);
        for attribute in computed {
            match &attribute.on_update {
                OnUpdate::Keep => {}
                OnUpdate::Unknown => state.set(attribute.name, Value::Unknown),
                OnUpdate::UnknownWith(other) if state.get(other) != prior.get(other) => {
                    state.set(attribute.name, Value::Unknown);
                }
                OnUpdate::UnknownWith(_) => {}
                OnUpdate::Becomes(value) => state.set(attribute.name, value.clone()),
            }
        }
    }
    Planned {
        state,
        replaces,
        changes,
    }
}

/// What was planned, with what was unknown taken from what is there now.
pub(crate) fn fill(planned: &Object, observed: &Object) -> Object {
    let fill = |(name, value): (&String, &Value)| {
        let value = if value.is_wholly_known() {
            value
        } else {
            observed.get(name)
        };
        (name.clone(), value.clone())
    };
    Object(planned.0.iter().map(fill).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Attribute;
    use crate::types::Type;

    fn schema() -> Schema {
        let attributes = vec![
            Attribute::required("name", Type::String, "").replaces(),
            Attribute::optional("size", Type::Number, ""),
            Attribute::either("zone", Type::String, "").replaces(),
            Attribute::default("protected", Type::Bool, false, ""),
            Attribute::computed("id", Type::String, ""),
            Attribute::computed("rank", Type::Number, "").on_update(OnUpdate::UnknownWith("size")),
            Attribute::computed("shade", Type::Number, "").on_update(OnUpdate::UnknownWith("zone")),
            Attribute::computed("nodes", Type::list(Type::String), "").on_update(OnUpdate::Unknown),
            Attribute::computed("ready", Type::Bool, "").on_update(OnUpdate::Becomes(true.into())),
        ];
        Schema::new("", attributes)
    }

    fn prior() -> Object {
        Object::from([
            ("name", "a".into()),
            ("size", 2.into()),
            ("zone", "z".into()),
            ("protected", false.into()),
            ("id", "1".into()),
            ("rank", 1.into()),
            ("shade", 1.into()),
            ("nodes", Value::List(vec!["n".into()])),
            ("ready", false.into()),
        ])
    }

    /// What Terraform proposes: the configuration, with what is computed from before.
    fn proposed(prior: &Object, config: &Object) -> Object {
        let mut proposed = prior.clone();
        for (name, value) in &config.0 {
            proposed.set(name, value.clone());
        }
        if config.get("size").is_null() {
            proposed.set("size", Value::Null);
        }
        proposed
    }

    #[test]
    fn a_creation_knows_nothing_of_what_is_computed() {
        let config = Object::from([("name", "a".into()), ("size", Value::Unknown)]);
        let plan = plan(&schema(), None, &config, &config);
        let wanted = Object::from([
            ("name", "a".into()),
            ("size", Value::Unknown),
            ("zone", Value::Unknown),
            ("protected", false.into()),
            ("id", Value::Unknown),
            ("rank", Value::Unknown),
            ("shade", Value::Unknown),
            ("nodes", Value::Unknown),
            ("ready", Value::Unknown),
        ]);
        assert_eq!(plan.state, wanted);
        assert_eq!(plan.replaces, []);
        assert!(plan.changes);
    }

    #[test]
    fn nothing_asked_for_is_nothing_planned() {
        let config = Object::from([("name", "a".into()), ("size", 2.into())]);
        let plan = plan(&schema(), Some(&prior()), &proposed(&prior(), &config), &config);
        assert_eq!((plan.state, plan.changes), (prior(), false));
    }

    #[test]
    fn an_update_keeps_what_it_does_not_touch() {
        let config = Object::from([("name", "a".into()), ("size", 3.into())]);
        let plan = plan(&schema(), Some(&prior()), &proposed(&prior(), &config), &config);
        let mut wanted = prior();
        wanted.set("size", 3);
        wanted.set("rank", Value::Unknown);
        wanted.set("nodes", Value::Unknown);
        wanted.set("ready", true);
        assert_eq!(plan.state, wanted);
        assert_eq!(plan.replaces, []);
    }

    #[test]
    fn what_is_taken_out_of_the_configuration_goes_or_returns_to_its_default() {
        let mut before = prior();
        before.set("protected", true);
        let config = Object::from([("name", "a".into())]);
        let plan = plan(&schema(), Some(&before), &proposed(&before, &config), &config);
        assert_eq!(plan.state.get("size"), &Value::Null);
        assert_eq!(plan.state.get("protected"), &Value::Bool(false));
        assert_eq!(plan.state.get("zone"), &Value::from("z"));
    }

    #[test]
    fn some_changes_need_a_new_resource() {
        let config = Object::from([("name", "b".into()), ("size", 2.into()), ("zone", Value::Unknown)]);
        let plan = plan(&schema(), Some(&prior()), &proposed(&prior(), &config), &config);
        assert_eq!(plan.replaces, [Path::attribute("name"), Path::attribute("zone")]);
    }

    #[test]
    fn only_unknowns_are_filled() {
        let planned = Object::from([("size", 3.into()), ("id", Value::Unknown), ("x", Value::Unknown)]);
        let observed = Object::from([("size", 4.into()), ("id", "1".into())]);
        let wanted = Object::from([("size", 3.into()), ("id", "1".into()), ("x", Value::Null)]);
        assert_eq!(fill(&planned, &observed), wanted);
    }
}
