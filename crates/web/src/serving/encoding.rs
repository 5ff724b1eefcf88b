//! Queries of addresses, and forms: they must be UTF-8, because the parsers would replace everything else, and a changed text would
//! be stored. No query may contain a token, because addresses are kept in histories and in logs of proxies.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::serving::problem::Problem;

/// Parameters in which a program could send a token.
const TOKEN_KEYS: [&str; 2] = ["token", "access_token"];

/// Refuses a query that is not UTF-8, and one with a token. The words do not repeat it.
pub(crate) fn check_query(uri: &Uri) -> Result<(), Problem> {
    if !is_utf8(uri.query().unwrap_or_default().as_bytes()) {
        return Err(Problem::input("the address is not UTF-8"));
    }
    match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) if pairs.iter().any(|(key, _)| TOKEN_KEYS.contains(&key.as_str())) => {
            Err(Problem::input("a token in an address is not accepted; send the header Authorization: Bearer TOKEN"))
        }
        _ => Ok(()),
    }
}

/// Refuses a form that is not UTF-8.
pub(crate) async fn with_utf8_form(request: Request, next: Next) -> Response {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    if !kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await {
        Ok(body) if is_utf8(&body) => body,
        // The words become a problem or a page like every other refusal.
        Ok(_) => return (StatusCode::BAD_REQUEST, "the form is not UTF-8").into_response(),
        Err(refused) => return refused.into_response(),
    };
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// Returns true if an encoded text is UTF-8 after it is decoded.
pub(crate) fn is_utf8(encoded: &[u8]) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut decoded, mut rest) = (Vec::with_capacity(encoded.len()), encoded);
    while let [first, after @ ..] = rest {
        let byte = match after {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    std::str::from_utf8(&decoded).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_text_is_utf8_if_what_it_means_is() {
        for text in ["", "a=b+c&d", "%", "%4", "100%&x=%zz", "%C3%a4", "\u{e4}"] {
            assert!(is_utf8(text.as_bytes()), "{text}");
        }
        for bytes in [b"a=\xff".as_slice(), b"a=%ff", b"a=%c3&b=%a4", b"%ed%a0%80"] {
            assert!(!is_utf8(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn an_address_contains_no_token() {
        let check = |address: &str| check_query(&address.parse().expect("an address"));
        assert_eq!(check("/tasks?q=token%3Dsecret"), Ok(()));
        for address in ["/tasks?token=secret", "/live?a=b&access_token=secret", "/?%74oken=secret", "/?token"] {
            let problem = check(address).expect_err(address);
            assert!(problem.detail.contains("Authorization") && !problem.detail.contains("secret"), "{problem:?}");
        }
    }
}
