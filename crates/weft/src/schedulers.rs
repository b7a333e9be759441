//! What the tools say of targets whose disks have an I/O scheduler that does not suit them.

/// A sentence that warns of the targets with these names; none without any.
pub fn warning(targets: &[impl AsRef<str>]) -> Option<String> {
    let names: Vec<&str> = targets.iter().map(AsRef::as_ref).collect();
    let names = match names.as_slice() {
        [] => return None,
        [one] => (*one).to_owned(),
        [first, ..] => format!("{first} and {} more", names.len() - 1),
    };
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
        let many = warning(&["w-OST0000", "w-OST0001", "w-OST0002"]).expect("they are unsuited");
        assert!(many.starts_with("w-OST0000 and 2 more: "), "{many}");
    }
}
