//! What the tools say of targets whose disks have an I/O scheduler that does not suit them.

/// Targets that are named.
const NAMES_MAX: usize = 4;

/// A sentence that warns of the targets with these names; none without any.
pub fn warning(targets: &[impl AsRef<str>]) -> Option<String> {
    if targets.is_empty() {
        return None;
    }
    let named: Vec<&str> = targets.iter().map(AsRef::as_ref).take(NAMES_MAX).collect();
    let more = match targets.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = format!("{}{more}", named.join(", "));
    Some(format!(
        "{names}: the I/O scheduler of a disk does not suit it; \"lctl get_param osd-weft.*.io_scheduler\" on the server says which one does, and \
         \"lctl set_param osd-weft.*.tune_disk=1\" sets it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_whatever_the_number() {
        assert_eq!(warning(&[] as &[&str]), None);
        let one = warning(&["w-OST0000"]).expect("one is unsuited");
        assert!(one.starts_with("w-OST0000: the I/O scheduler") && !one.contains('\n'), "{one}");
        let few = warning(&["w-OST0000", "w-OST0001"]).expect("they are unsuited");
        assert!(few.starts_with("w-OST0000, w-OST0001: "), "{few}");
        let many = warning(&["a", "b", "c", "d", "e", "f"]).expect("they are unsuited");
        assert!(many.starts_with("a, b, c, d and 2 more: ") && !many.contains('\n'), "{many}");
    }
}
