// Services with a planted leak, in Java. Usage: Service heap|direct leak|steady
import java.nio.ByteBuffer;
import java.util.ArrayDeque;

public class Service {
    public static void main(String[] words) throws InterruptedException {
        ArrayDeque<Object> kept = new ArrayDeque<>();
        for (int number = 0;; number++) {
            kept.add(words[0].equals("direct") ? ByteBuffer.allocateDirect(12000) : new byte[60000]);
            if (words[1].equals("steady") && kept.size() > 500)
                kept.removeFirst();
            Thread.sleep(20);
        }
    }
}
