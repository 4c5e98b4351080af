<?php
// A service with a planted leak, in PHP. Usage: service.php heap leak|steady
$kept = [];
for ($number = 0;; $number++) {
    $kept[] = str_repeat("x", 12000) . $number;
    if ($argv[2] === "steady" && count($kept) > 500) {
        array_shift($kept);
    }
    usleep(20000);
}
