//! Front matter that is not YAML: the TOML between `+++` lines that Hugo and Zola write.

use knowledge::{Document, UnitType};
use serde_yaml::Value;

/// The keys of TOML that are read. Dates, drafts and menus are the site's.
const KEYS: [&str; 5] = ["title", "description", "tags", "domain", "type"];

/// A note whose front matter in TOML has become YAML, and what could not be read of it. Any other note stays as it is.
pub(super) fn with_yaml(raw: String) -> (String, Option<String>) {
    let Some((toml, body)) = split(&raw) else { return (raw, None) };
    let table: toml::Table = match toml.parse() {
        Ok(table) => table,
        Err(error) => {
            let reason = format!("is not valid TOML: {}", knowledge::text::one_line(error.message(), 200));
            return (body.to_owned(), Some(reason));
        }
    };
    let in_taxonomies = || table.get("taxonomies").and_then(|taxonomies| taxonomies.get("tags"));
    // Another type is a layout of the site.
    let is_type =
        |value: &toml::Value| value.as_str().is_some_and(|kind| UnitType::KNOWN.contains(&kind.into()));
    let value = |key: &str| {
        let value = table.get(key).filter(|value| key != "type" || is_type(value));
        value.or_else(|| in_taxonomies().filter(|_| key == "tags"))
    };
    let front = KEYS.into_iter().filter_map(|key| Some((key, yaml(value(key)?)?)));
    let front: Vec<(&str, Value)> = front.collect();
    match front.is_empty() {
        true => (body.to_owned(), None),
        false => (Document::compose(&front, body).as_str().to_owned(), None),
    }
}

/// The TOML between a first line `+++` and the next one, and what is below.
fn split(raw: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    let mut start = None;
    for line in raw.split_inclusive('\n') {
        let end = at + line.len();
        match (line.trim_end() == "+++", start) {
            (true, None) => start = Some(end),
            (true, Some(start)) => return Some((&raw[start..at], &raw[end..])),
            (false, None) => return None,
            (false, Some(_)) => {}
        }
        at = end;
    }
    None
}

fn yaml(value: &toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Array(items) => Value::Sequence(items.iter().filter_map(yaml).collect()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_matter_of_hugo_is_read() {
        let raw =
            "+++\ntitle = 'Retries'\ndate = 2026-01-02\ntags = ['net', 'retry']\n+++\n\nRetry thrice.\n";
        let (yaml, problem) = with_yaml(raw.to_owned());
        assert_eq!(
            (yaml.as_str(), problem),
            ("---\ntitle: Retries\ntags:\n- net\n- retry\n---\n\nRetry thrice.\n", None)
        );
        let (yaml, _) = with_yaml("+++\n[taxonomies]\ntags = ['net']\n+++\nbody\n".to_owned());
        assert_eq!(yaml, "---\ntags:\n- net\n---\n\nbody\n");
        let (body, problem) = with_yaml("+++\ntitle = \n+++\nbody\n".to_owned());
        assert!(body == "body\n" && problem.is_some_and(|problem| problem.starts_with("is not valid TOML")));
        assert_eq!(with_yaml("+++\ntype = 'post'\n+++\nbody\n".to_owned()), ("body\n".to_owned(), None));
        for other in ["# Notes\n+++\na\n+++\n", "+++\nnever closed\n", "---\ntags: [a]\n---\n"] {
            assert_eq!(with_yaml(other.to_owned()), (other.to_owned(), None));
        }
    }
}
