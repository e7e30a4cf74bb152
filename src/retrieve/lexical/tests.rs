//! Questions in scripts of which the built-in vocabulary has little more than the letters.

use super::*;
use crate::Query;
use crate::tests::{World, ids, unit};

/// Units of one language by their ids, questions with the unit that answers each, and questions about other subjects.
struct Language {
    units: &'static [(&'static str, &'static str, &'static str)],
    related: &'static [(&'static str, &'static str)],
    unrelated: &'static [&'static str],
}

const LANGUAGES: &[Language] = &[
    Language {
        units: &[
            (
                "pool",
                "数据库连接池的上限",
                "连接池最多保持二十个连接，超过的请求排队等待，所以服务启动时要先检查数据库。",
            ),
            ("cert", "证书轮换的步骤", "每九十天更换证书，旧证书保留一周，更换之后必须重新启动网关。"),
            ("font", "字体缺失时的后备方案", "浏览器找不到字体时使用系统字体，页面的布局因此会有一点变化。"),
            ("queue", "任务队列的重试规则", "失败的任务最多重试五次，每次等待的时间加倍，然后进入死信队列。"),
            ("cache", "缓存失效的原因", "商品价格改变时没有通知缓存，所以用户看到的是旧价格。"),
            ("passwords", "日志不能记录密码", "请求的正文在写入日志之前要去掉密码和令牌。"),
            ("test", "集成测试为什么很慢", "每个测试都会重新建立数据库，改成共享一个数据库以后快了三倍。"),
            ("deploy", "星期五不部署", "周末没有人值班，所以星期五下午以后不部署。"),
        ],
        related: &[
            ("数据库连接池最多多少连接", "pool"),
            ("怎么更换证书", "cert"),
            ("为什么缓存显示旧价格", "cache"),
            ("失败的任务重试几次", "queue"),
            ("密码可以写入日志吗", "passwords"),
            ("集成测试为什么慢", "test"),
            ("星期五可以部署吗", "deploy"),
            ("字体缺失怎么办", "font"),
        ],
        unrelated: &[
            "猫为什么不吃东西",
            "怎么做面包",
            "什么时候种番茄",
            "最近有什么好看的电影",
            "钢琴要练习多久",
            "请问附近的餐厅在哪里",
            "北京到上海多少公里",
            "他喜欢什么音乐",
            "孩子发烧怎么办",
            "如何学习游泳",
        ],
    },
    Language {
        units: &[
            (
                "pool",
                "Предел пула соединений с базой данных",
                "Пул держит не больше двадцати соединений, остальные запросы ждут в очереди, пока одно не освободится.",
            ),
            (
                "cert",
                "Как менять сертификаты",
                "Сертификаты меняются каждые девяносто дней, старый хранится ещё неделю, после замены шлюз перезапускается.",
            ),
            (
                "font",
                "Запасной шрифт",
                "Если браузер не находит шрифт, берётся системный, и вид страницы немного меняется.",
            ),
            (
                "queue",
                "Правила повторных попыток",
                "Неудачное задание повторяется не больше пяти раз, ожидание каждый раз удваивается.",
            ),
            (
                "cache",
                "Почему кэш отдаёт старые цены",
                "При изменении цены кэш не получает уведомления, поэтому пользователь видит старую цену.",
            ),
            (
                "passwords",
                "Пароли не пишутся в журнал",
                "Тело запроса перед записью в журнал очищается от паролей и токенов.",
            ),
            (
                "test",
                "Почему тесты медленные",
                "Каждый тест заново создаёт базу данных; общая база ускорила их в три раза.",
            ),
            (
                "deploy",
                "По пятницам не выкатываем",
                "В выходные никто не дежурит, поэтому после обеда в пятницу ничего не выкатываем.",
            ),
        ],
        related: &[
            ("Сколько соединений держит пул?", "pool"),
            ("Как менять сертификаты?", "cert"),
            ("Почему кэш показывает старую цену?", "cache"),
            ("Сколько раз повторяется неудачное задание?", "queue"),
            ("Пишутся ли пароли в журнал?", "passwords"),
            ("Почему тесты медленные?", "test"),
            ("Можно ли выкатывать в пятницу?", "deploy"),
            ("шрифт не найден", "font"),
        ],
        unrelated: &[
            "Почему кошка не ест",
            "Когда сажать помидоры",
            "Как испечь хлеб",
            "Какой фильм посмотреть вечером",
            "Сколько стоит билет до Казани",
            "Как научиться играть на пианино",
            "Где лучше отдыхать летом",
            "Что делать, если болит голова",
            "Почему небо синее",
            "Как выбрать велосипед для ребёнка",
        ],
    },
    Language {
        units: &[
            (
                "pool",
                "الحد الأقصى لاتصالات قاعدة البيانات",
                "يحتفظ المجمع بعشرين اتصالا على الأكثر وتنتظر الطلبات الأخرى في الطابور.",
            ),
            (
                "cert",
                "كيف تستبدل الشهادات",
                "تستبدل الشهادات كل تسعين يوما وتبقى القديمة أسبوعا ثم تعاد تشغيل البوابة.",
            ),
            (
                "cache",
                "لماذا تعرض الذاكرة المؤقتة أسعارا قديمة",
                "لا تبلغ الذاكرة المؤقتة بتغير السعر فيرى المستخدم السعر القديم.",
            ),
            (
                "passwords",
                "لا تكتب كلمات المرور في السجل",
                "ينظف نص الطلب من كلمات المرور والرموز قبل كتابته في السجل.",
            ),
            (
                "deploy",
                "لا نشر يوم الجمعة",
                "لا يعمل أحد في عطلة نهاية الأسبوع ولذلك لا ينشر شيء بعد ظهر الجمعة.",
            ),
        ],
        related: &[
            ("ما هو الحد الأقصى لاتصالات قاعدة البيانات", "pool"),
            ("كيف تستبدل الشهادات", "cert"),
            ("لماذا تعرض الذاكرة المؤقتة السعر القديم", "cache"),
            ("هل تكتب كلمات المرور في السجل", "passwords"),
            ("الشهادات", "cert"),
        ],
        unrelated: &[
            "لماذا لا تأكل القطة",
            "كيف أخبز الخبز",
            "متى تزرع الطماطم",
            "ما هو أفضل فيلم هذا العام",
            "كم سعر التذكرة إلى القاهرة",
            "لماذا السماء زرقاء",
        ],
    },
    Language {
        units: &[
            (
                "pool",
                "データベース接続プールの上限",
                "プールは最大二十本の接続を保持し、それ以上の要求は空くまで待ちます。",
            ),
            (
                "cert",
                "証明書の更新手順",
                "証明書は九十日ごとに更新し、古いものは一週間残してからゲートウェイを再起動します。",
            ),
            (
                "cache",
                "キャッシュが古い価格を返す理由",
                "価格が変わってもキャッシュに通知されないので、利用者は古い価格を見ます。",
            ),
            (
                "passwords",
                "パスワードはログに書かない",
                "要求の本文はログに書く前にパスワードとトークンを取り除きます。",
            ),
            ("deploy", "金曜日はデプロイしない", "週末は当番がいないので、金曜日の午後はデプロイしません。"),
        ],
        related: &[
            ("接続プールの上限はいくつですか", "pool"),
            ("証明書を更新する手順は？", "cert"),
            ("なぜキャッシュは古い価格を返すのか", "cache"),
            ("パスワードをログに書いてもいいですか", "passwords"),
            ("金曜日にデプロイできますか", "deploy"),
            ("証明書", "cert"),
            ("ゲートウェイの再起動", "cert"),
        ],
        unrelated: &[
            "猫はなぜ食べないのですか",
            "パンの作り方を教えてください",
            "トマトはいつ植えますか",
            "おすすめの映画は何ですか",
            "ピアノの練習はどのくらい必要ですか",
            "空はなぜ青いのか",
            "明日の天気はどうですか",
            "子供が熱を出したときはどうしますか",
        ],
    },
    Language {
        units: &[
            (
                "pool",
                "데이터베이스 연결 풀의 한도",
                "풀은 연결을 최대 스무 개까지 유지하고 나머지 요청은 대기열에서 기다린다.",
            ),
            (
                "cert",
                "인증서를 교체하는 방법",
                "인증서는 구십일마다 교체하고 이전 것은 일주일 동안 보관한다.",
            ),
            (
                "cache",
                "캐시가 오래된 가격을 보여주는 이유",
                "가격이 바뀌어도 캐시에 알리지 않아서 사용자는 오래된 가격을 본다.",
            ),
            (
                "passwords",
                "비밀번호는 로그에 쓰지 않는다",
                "요청 본문은 로그에 쓰기 전에 비밀번호와 토큰을 지운다.",
            ),
            (
                "deploy",
                "금요일에는 배포하지 않는다",
                "주말에는 당번이 없어서 금요일 오후에는 배포하지 않는다.",
            ),
        ],
        related: &[
            ("연결 풀의 한도는 얼마인가요", "pool"),
            ("인증서를 어떻게 교체하나요", "cert"),
            ("캐시가 왜 오래된 가격을 보여주나요", "cache"),
            ("로그에 비밀번호를 써도 되나요", "passwords"),
            ("금요일에 배포해도 되나요", "deploy"),
            ("인증서", "cert"),
        ],
        unrelated: &[
            "고양이가 왜 먹지 않나요",
            "빵을 어떻게 굽나요",
            "토마토는 언제 심나요",
            "추천할 만한 영화가 있나요",
            "피아노 연습은 얼마나 해야 하나요",
            "하늘은 왜 파란가요",
            "내일 날씨는 어떤가요",
        ],
    },
];

#[test]
fn a_question_in_another_script_gets_only_what_bears_on_it() {
    for Language { units, related, unrelated } in LANGUAGES {
        let files = units.iter().map(|(id, title, body)| (*id, unit(id, title, "", body)));
        let world = World::new(&files.collect::<Vec<_>>());
        for question in *unrelated {
            let query = world.query(question);
            let by_words = world.answer(&Query { vector: None, ..query.clone() });
            let answer = world.answer(&query);
            assert_eq!((ids(&answer), ids(&by_words)), (Vec::new(), Vec::new()), "{question}");
        }
        for (question, expected) in *related {
            let answer = world.answer(&world.query(question));
            assert_eq!(ids(&answer).first(), Some(expected), "{question}: {:?}", ids(&answer));
        }
    }
}

#[test]
fn a_question_in_two_scripts_finds_both_and_nothing_else() {
    let files = [
        (
            "cache-en",
            "Why the cache serves old prices",
            "The cache is not told when a price changes, so a user sees the old price.",
        ),
        (
            "pool-en",
            "Limit of the connection pool",
            "The pool keeps twenty connections at most; further requests wait in a queue.",
        ),
        (
            "test-ru",
            "Почему тесты медленные",
            "Каждый тест заново создаёт базу данных; общая база ускорила их в три раза.",
        ),
        (
            "deploy-ru",
            "По пятницам не выкатываем",
            "В выходные никто не дежурит, поэтому после обеда ничего не выкатываем.",
        ),
        (
            "font-ru",
            "Запасной шрифт",
            "Если браузер не находит шрифт, берётся системный, и вид страницы меняется.",
        ),
    ];
    let world = World::new(&files.map(|(id, title, body)| (id, unit(id, title, "", body))));
    let found = |question: &str| {
        let ids: Vec<String> =
            ids(&world.answer(&world.query(question))).iter().map(|id| (*id).to_owned()).collect();
        ids
    };
    assert_eq!(found("Почему cache отдаёт старые prices?"), ["cache-en"]);
    assert_eq!(found("connection pool переполнен, что делать"), ["pool-en"]);
    assert_eq!(found("почему медленные тесты в CI"), ["test-ru"]);
    assert_eq!(found("why does the cache serve old prices"), ["cache-en"]);
    for question in ["как испечь хлеб в multicooker", "when to feed кошка", "где купить билет на train"]
    {
        assert_eq!(found(question), [""; 0], "{question}");
    }
}

#[test]
fn each_letter_of_a_script_without_spaces_is_compared_with_those_beside_it() {
    assert_eq!(split_unspaced("連接池"), ["連接", "連接池", "接池"]);
    assert_eq!(split_unspaced("v2値"), ["v2", "値"]);
    assert_eq!(split_unspaced("größe"), ["größe"]);
    let holds = |word: &str, text: &str| Piece::from_word(word).is_in(text);
    assert!(holds("連接池", "新接池") && holds("値", "の値") && !holds("連接池", "連池接"));
    assert!(holds("Тесты", "тестов") && holds("кот", "кот") && !holds("кот", "который"));
}
