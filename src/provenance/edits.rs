//! What a tool call changes in files.

use std::path::Path;

use serde_json::Value;

const PATCH_BEGINS: &str = "*** Begin Patch";

/// A change of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEdit {
    /// The file, as the call names it; from the folder of the call, if it names one.
    pub path: String,
    /// The text that goes, with what stands around it.
    pub removed: String,
    /// The text that takes its place.
    pub added: String,
    /// Whether `added` is the whole file.
    pub is_whole: bool,
}

/// The changes that a call of a tool makes. `input` is JSON; of one that was shortened what can be read is used.
pub fn file_edits(tool: &str, input: &str) -> Vec<FileEdit> {
    let Ok(input) = serde_json::from_str::<Value>(input) else { return broken(tool, input) };
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let edit = |path: &str, value: &Value| FileEdit {
        path: path.to_owned(),
        removed: text(value, "old_string"),
        added: text(value, "new_string"),
        is_whole: false,
    };
    let path = text(&input, "file_path");
    match tool {
        "Edit" => vec![edit(&path, &input)],
        "MultiEdit" => {
            let edits = input.get("edits").and_then(Value::as_array);
            edits.into_iter().flatten().map(|one| edit(&path, one)).collect()
        }
        "Write" => {
            vec![FileEdit { path, added: text(&input, "content"), is_whole: true, ..FileEdit::default() }]
        }
        "NotebookEdit" => {
            let path = text(&input, "notebook_path");
            vec![FileEdit { path, added: text(&input, "new_source"), ..FileEdit::default() }]
        }
        _ => {
            let mut patches = Vec::new();
            find_patches(&input, &mut patches);
            let mut edits: Vec<FileEdit> = patches.iter().flat_map(|patch| patch_edits(patch)).collect();
            let folder = Path::new(input.get("workdir").and_then(Value::as_str).unwrap_or_default());
            for edit in &mut edits {
                edit.path = folder.join(&edit.path).to_string_lossy().into_owned();
            }
            edits
        }
    }
}

/// Reads what is left of an input that is no JSON any more.
fn broken(tool: &str, input: &str) -> Vec<FileEdit> {
    let plain = input.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\\\", "\\");
    if plain.contains(PATCH_BEGINS) {
        return patch_edits(&plain);
    }
    let path = ["\"file_path\":\"", "\"notebook_path\":\""].iter().find_map(|key| {
        let start = input.find(key)? + key.len();
        input[start..].split('"').next()
    });
    let Some(path) = path.filter(|_| tool == "Write" || tool == "NotebookEdit") else { return Vec::new() };
    vec![FileEdit { path: path.to_owned(), added: plain, ..FileEdit::default() }]
}

fn find_patches(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(PATCH_BEGINS) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| find_patches(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| find_patches(field, found)),
        _ => {}
    }
}

/// Reads a patch in the form of the tool `apply_patch`.
fn patch_edits(patch: &str) -> Vec<FileEdit> {
    let mut edits: Vec<FileEdit> = Vec::new();
    let mut is_inside = false;
    for line in patch.lines() {
        let file = ["*** Update File: ", "*** Add File: "].iter().find_map(|head| line.strip_prefix(head));
        if line.starts_with(PATCH_BEGINS) {
            is_inside = true;
        } else if line.starts_with("*** End Patch") {
            is_inside = false;
        } else if let Some(file) = file.filter(|_| is_inside) {
            let is_whole = line.starts_with("*** Add");
            edits.push(FileEdit { path: file.trim().to_owned(), is_whole, ..FileEdit::default() });
        } else if let Some(path) = line.strip_prefix("*** Move to: ").filter(|_| is_inside) {
            if let Some(edit) = edits.last_mut() {
                edit.path = path.trim().to_owned();
            }
        } else if let Some(edit) = edits.last_mut().filter(|_| is_inside && !line.starts_with("***")) {
            // A line without a sign is one that was cut, or a context line without its space.
            let (sign, text) = match line.as_bytes() {
                [b'+' | b'-' | b' ' | b'@', ..] => line.split_at(1),
                _ => (" ", line),
            };
            if sign != "+" && sign != "@" {
                edit.removed.push_str(text);
                edit.removed.push('\n');
            }
            if sign != "-" && sign != "@" {
                edit.added.push_str(text);
                edit.added.push('\n');
            }
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_says_what_it_changes() {
        let edit = file_edits("Edit", r#"{"file_path":"/a/b.rs","old_string":"x","new_string":"y\nz"}"#);
        assert_eq!(
            (edit[0].path.as_str(), edit[0].added.as_str(), edit[0].is_whole),
            ("/a/b.rs", "y\nz", false)
        );
        let many = r#"{"file_path":"a","edits":[{"old_string":"1","new_string":"2"},{"old_string":"","new_string":"3"}]}"#;
        assert_eq!(file_edits("MultiEdit", many).len(), 2);
        let whole = file_edits("Write", r#"{"file_path":"a","content":"all"}"#);
        assert!(whole[0].is_whole && whole[0].added == "all");
        let patch =
            "*** Begin Patch\\n*** Update File: src/a.rs\\n@@ fn x\\n before\\n-old\\n+new\\n*** End Patch";
        let shell = format!(r#"{{"command":["bash","-lc","apply_patch <<'E'\n{patch}\nE"]}}"#);
        let edits = file_edits("shell", &shell);
        assert_eq!(edits.len(), 1, "{edits:?}");
        assert_eq!((edits[0].path.as_str(), edits[0].added.as_str()), ("src/a.rs", "before\nnew\n"));
        assert_eq!(edits[0].removed, "before\nold\n");
        assert!(file_edits("shell", r#"{"command":["ls"]}"#).is_empty());
        for (workdir, path) in
            [("/shop/sub", "/shop/sub/src/a.rs"), ("sub", "sub/src/a.rs"), ("", "src/a.rs")]
        {
            let elsewhere = shell.replace("{\"command", &format!("{{\"workdir\":\"{workdir}\",\"command"));
            assert_eq!(file_edits("shell", &elsewhere)[0].path, path);
        }
    }

    #[test]
    fn a_patch_that_is_cut_within_a_line_is_read() {
        let patch = "*** Begin Patch\n*** Add File: a.md\n+一\n[…]\n行の途中\n+終わり\n*** End Patch";
        let edits = file_edits("apply_patch", &serde_json::json!({ "input": patch }).to_string());
        assert_eq!(edits[0].added, "一\n[…]\n行の途中\n終わり\n");
    }

    #[test]
    fn of_a_shortened_input_what_is_left_is_read() {
        let edits = file_edits("Write", "{\"file_path\":\"a/b\",\"content\":\"one\\ntwo\n[…]\nlast\"");
        assert_eq!(edits[0].path, "a/b");
        assert!(edits[0].added.lines().any(|line| line == "two"));
        assert!(file_edits("Edit", "{\"file_path\":\"a/b\",\"old_st").is_empty());
    }
}
