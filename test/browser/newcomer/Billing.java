import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** A small service as its developer would write it, with a leak: the audit trail is never trimmed. */
public class Billing {
    static final List<List<Double>> audit = new ArrayList<>();
    static final Random random = new Random(1);

    static List<Double> bill() {
        List<Double> lines = new ArrayList<>();
        for (int i = 0; i < 200; i++)
            lines.add(random.nextDouble() * 100);
        return lines;
    }

    public static void main(String[] args) throws Exception {
        System.out.println("ready " + ProcessHandle.current().pid());
        while (true) {
            for (int k = 0; k < 40; k++)
                audit.add(bill());
            Thread.sleep(10);
        }
    }
}
