<?php
// PHP: arrays and strings in Zend's heap, one large string, then a wait.
ini_set('memory_limit', '-1');
$kept = [];
for ($i = 0; $i < 200000; $i++)
    $kept[] = ['key' => $i, 'text' => "value $i"];
$large = str_repeat('x', 16 << 20);
echo "ready\n";
sleep(600);
echo count($kept), strlen($large);
