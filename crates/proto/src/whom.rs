//! Which client an operator means: as in Lustre, a UUID, `uuid:UUID` or `nid:ADDRESS`.

use crate::ClientId;

/// A client, or all clients at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whom {
    /// The client; 0 if an address is named.
    pub client: ClientId,
    /// The address, `10.1.1.2@tcp`; empty if a client is named.
    pub nid: String,
}

impl Whom {
    /// `None`: the text names nobody.
    pub fn parse(text: &str) -> Option<Whom> {
        if let Some(nid) = text.strip_prefix("nid:") {
            return (!nid.is_empty()).then(|| Whom { client: ClientId(0), nid: nid.to_owned() });
        }
        let digits = text.strip_prefix("uuid:").unwrap_or(text).replace('-', "");
        let client = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
        (client != 0).then(|| Whom { client: ClientId(client), nid: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_as_in_lustre() {
        let client = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
        let by_uuid = Some(Whom { client, nid: String::new() });
        let by_nid = Some(Whom { client: ClientId(0), nid: "10.0.0.7@tcp".into() });
        assert_eq!(Whom::parse("nid:10.0.0.7@tcp"), by_nid);
        assert_eq!(Whom::parse(&client.to_string()), by_uuid);
        assert_eq!(Whom::parse(&format!("uuid:{client}")), by_uuid);
        for bad in ["", "nid:", "uuid:", "10.0.0.7@tcp", "1234", &ClientId(0).to_string()] {
            assert_eq!(Whom::parse(bad), None, "{bad}");
        }
    }
}
