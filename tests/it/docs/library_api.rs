//! The public API of the library is what tests/it/docs/library_api.txt lists: a change of it is seen in a review.
//!
//! After a change that is meant: `TASKQUEUE_WRITE_API=yes cargo test -p taskqueue-cli --test it library_api`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, Type, UseTree, Visibility};

/// A crate of the workspace, and the files of its modules by their paths.
struct Sources {
    modules: BTreeMap<Vec<String>, syn::File>,
}

impl Sources {
    fn read(src: &Path) -> Self {
        let mut modules = BTreeMap::new();
        for file in rust_files(src) {
            let mut path: Vec<String> = file
                .strip_prefix(src)
                .unwrap()
                .with_extension("")
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            if path.last().is_some_and(|name| name == "mod" || name == "lib") {
                path.pop();
            }
            let text = std::fs::read_to_string(&file).unwrap();
            modules.insert(path, syn::parse_file(&text).unwrap());
        }
        Self { modules }
    }

    /// The item that is defined at this path, and every implementation in the crate.
    fn items_of<'a>(&'a self, path: &'a [String]) -> impl Iterator<Item = &'a Item> {
        let module = &path[..path.len() - 1];
        let is_meant = move |own: &[String], item: &Item| {
            own == module && !matches!(item, Item::Macro(item) if item.ident.is_some()) || matches!(item, Item::Impl(_))
        };
        self.modules.iter().flat_map(move |(own, file)| file.items.iter().filter(move |item| is_meant(own, item)))
    }
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.chain(directories.iter().flat_map(|inner| rust_files(inner))).collect()
}

struct Workspace {
    crates: BTreeMap<String, Sources>,
}

impl Workspace {
    fn read() -> Self {
        let root = Path::new(env!("REPOSITORY_DIR"));
        let mut crates = BTreeMap::from([("taskqueue".to_owned(), Sources::read(&root.join("src")))]);
        for name in ["domain", "host", "process", "store", "engine"] {
            crates.insert(format!("taskqueue_{name}"), Sources::read(&root.join("crates").join(name).join("src")));
        }
        Self { crates }
    }

    /// Every name that the root of the library exports, with the crate and the path that define it.
    fn exports(&self) -> Vec<(String, String, Vec<String>)> {
        let root = &self.crates["taskqueue"].modules[&Vec::new()];
        let uses = root.items.iter().filter_map(|item| match item {
            Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => Some(&item.tree),
            _ => None,
        });
        let mut exports: Vec<_> =
            uses.flat_map(leaves).filter(|leaf| leaf.len() > 1).map(|leaf| self.defined("taskqueue", &leaf)).collect();
        exports.sort();
        exports
    }

    /// Follows `pub use` from a path in a crate to the item.
    fn defined(&self, krate: &str, path: &[String]) -> (String, String, Vec<String>) {
        let (krate, path) = match path.first().map(String::as_str) {
            Some("crate") => (krate.to_owned(), path[1..].to_vec()),
            Some(first) if self.crates.contains_key(first) => (first.to_owned(), path[1..].to_vec()),
            _ => (krate.to_owned(), path.to_vec()),
        };
        let (name, module) = path.split_last().unwrap();
        let file = self.crates[&krate]
            .modules
            .get(module)
            .unwrap_or_else(|| panic!("{krate}: no module {module:?} of {name}"));
        let further = file.items.iter().find_map(|item| match item {
            Item::Use(item) => leaves(&item.tree).into_iter().find(|leaf| leaf.last() == Some(name)),
            _ => None,
        });
        match further {
            Some(mut leaf) => {
                let child: Vec<String> = module.iter().cloned().chain([leaf[0].clone()]).collect();
                if leaf[0] == "self" {
                    leaf.remove(0);
                    leaf.splice(0..0, module.iter().cloned());
                } else if self.crates[&krate].modules.contains_key(&child) {
                    leaf.splice(0..0, module.iter().cloned());
                } else if leaf[0] == "super" {
                    leaf.remove(0);
                    leaf.splice(0..0, module[..module.len() - 1].iter().cloned());
                }
                self.defined(&krate, &leaf)
            }
            None => (name.clone(), krate, path.clone()),
        }
    }
}

fn leaves(tree: &UseTree) -> Vec<Vec<String>> {
    match tree {
        UseTree::Path(path) => {
            let below = leaves(&path.tree).into_iter();
            below.map(|leaf| std::iter::once(path.ident.to_string()).chain(leaf).collect()).collect()
        }
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(rename) => vec![vec![rename.rename.to_string()]],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        UseTree::Glob(_) => Vec::new(),
    }
}

/// Tokens as people write them.
fn words(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        (" :", ":"),
        ("-> ", "-> "),
        (" ;", ";"),
        ("# [", "#["),
        (" [", "["),
        ("' ", "'"),
    ] {
        text = text.replace(from, to);
    }
    text.replace(",)", ")").replace("->", " -> ").split_whitespace().collect::<Vec<_>>().join(" ")
}

const fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn fields(out: &mut BTreeSet<String>, owner: &str, fields: &Fields) {
    for (place, field) in fields.iter().enumerate() {
        if is_public(&field.vis) {
            let name = field.ident.as_ref().map_or_else(|| place.to_string(), ToString::to_string);
            out.insert(format!("{owner}.{name}: {}", words(&field.ty)));
        }
    }
}

fn describe_item(out: &mut BTreeSet<String>, name: &str, item: &Item) {
    match item {
        Item::Struct(item) if item.ident == name => {
            out.insert(format!("struct {name}{}", words(&item.generics)));
            fields(out, name, &item.fields);
        }
        Item::Enum(item) if item.ident == name => {
            out.insert(format!("enum {name}{}", words(&item.generics)));
            for variant in &item.variants {
                out.insert(format!("{name}::{}", words(variant)));
            }
        }
        Item::Trait(item) if item.ident == name => {
            out.insert(format!("trait {name}: {}", words(&item.supertraits)));
            for function in &item.items {
                if let TraitItem::Fn(function) = function {
                    let provided = if function.default.is_some() { " (provided)" } else { "" };
                    out.insert(format!("{name}::{}{provided}", words(&function.sig)));
                }
            }
        }
        Item::Type(item) if item.ident == name => {
            out.insert(format!("type {name} = {}", words(&item.ty)));
        }
        Item::Fn(item) if item.sig.ident == name => {
            out.insert(words(&item.sig));
        }
        Item::Impl(item) if is_type(&item.self_ty, name) => match &item.trait_ {
            Some((_, path, _)) => {
                out.insert(format!("{name} implements {}", words(path)));
            }
            None => {
                for function in &item.items {
                    if let ImplItem::Fn(function) = function
                        && is_public(&function.vis)
                    {
                        out.insert(format!("{name}::{}", words(&function.sig)));
                    }
                }
            }
        },
        // The names of types come before the first brace.
        Item::Macro(item) => {
            let tokens = item.mac.tokens.to_string();
            let (types, values) = tokens.split_once('{').unwrap_or((&tokens, ""));
            if types.split(|c: char| !c.is_alphanumeric()).any(|word| word == name) {
                let values = values.split('}').next().unwrap_or_default();
                let values = values.split_whitespace().collect::<Vec<_>>().join(" ");
                out.insert(
                    format!("{name} is defined by the macro {}! {values}", words(&item.mac.path)).trim().to_owned(),
                );
            }
        }
        _ => {}
    }
}

fn is_type(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == name))
}

fn without_attributes(mut file: syn::File) -> syn::File {
    for item in &mut file.items {
        if let Item::Enum(item) = item {
            for variant in &mut item.variants {
                variant.attrs.clear();
                for field in &mut variant.fields {
                    field.attrs.clear();
                }
            }
        }
    }
    file
}

fn api() -> String {
    let mut workspace = Workspace::read();
    for sources in workspace.crates.values_mut() {
        sources.modules = std::mem::take(&mut sources.modules)
            .into_iter()
            .map(|(path, file)| (path, without_attributes(file)))
            .collect();
    }
    let mut text = String::new();
    for (name, krate, path) in workspace.exports() {
        let mut lines = BTreeSet::new();
        for item in workspace.crates[&krate].items_of(&path) {
            describe_item(&mut lines, &name, item);
        }
        assert!(!lines.is_empty(), "nothing of {name} was found in {krate}");
        for line in lines {
            writeln!(text, "{line}").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_public_api_of_the_library_is_the_one_that_is_listed() {
    let listed = Path::new(env!("REPOSITORY_DIR")).join("tests/it/docs/library_api.txt");
    let found = api();
    if std::env::var_os("TASKQUEUE_WRITE_API").is_some() {
        std::fs::write(&listed, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&listed).unwrap();
    let (found, expected): (BTreeSet<&str>, BTreeSet<&str>) = (found.lines().collect(), expected.lines().collect());
    let added: Vec<_> = found.difference(&expected).collect();
    let removed: Vec<_> = expected.difference(&found).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "the public API has changed; if that is meant, write the list with TASKQUEUE_WRITE_API=yes\nadded: {added:#?}\nremoved: {removed:#?}"
    );
}
